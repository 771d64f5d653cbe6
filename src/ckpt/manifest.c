/* manifest.json, written: what a checkpoint holds, where, and the checksum of every byte of it.  No
 * time and no host: equal input gives equal bytes. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include "base/hash.h"
#include <inttypes.h>
#include <stdio.h>

void manifest_tail(const char *bytes, size_t n_bytes, char tail[64])
{
    snprintf(tail, 64, "\"checksum\": \"%016" PRIx64 "\"}\n", hash64(bytes, n_bytes, 0));
}

static void put_member(struct text *t, const char *key, const char *value)
{
    text_printf(t, "\"%s\": ", key);
    text_json_string(t, value);
    text_printf(t, ", ");
}

static void put_array(struct text *t, const struct manifest *m, int i)
{
    const struct ckpt_array *x = &m->arrays[i];
    text_printf(t, "%s\n  {", i ? "," : "");
    put_member(t, "group", x->group);
    put_member(t, "name", x->name);
    put_member(t, "dtype", dtype_name(x->dtype));
    text_printf(t, "\"shape\": [");
    for (int d = 0; d < x->shape.n_dims; d++)
        text_printf(t, "%s%" PRId64, d ? ", " : "", x->shape.dim[d]);
    text_printf(t, "], ");
    if (x->layout)
        put_member(t, "layout", x->layout);
    if (x->alias)
        put_member(t, "alias", x->alias);
    text_printf(t, "\"offset\": %" PRId64 ", \"ranges\": [", m->offset[i]);
    for (int64_t r = m->first_range[i]; r < m->first_range[i + 1]; r++)
        text_printf(t, "%s[%" PRId64 ", %" PRId64 ", \"%016" PRIx64 "\"]",
                    r > m->first_range[i] ? ", " : "", m->ranges[r].begin, m->ranges[r].end,
                    m->ranges[r].hash);
    text_printf(t, "]}");
}

int manifest_write(const struct manifest *m, const char *path)
{
    struct text t = {0};
    char tail[64];
    text_printf(&t, "{\"format\": \"%s\",\n\"step\": %" PRId64 ",\n", CKPT_FORMAT, m->step);
    text_printf(&t, "\"run_id\": ");
    text_json_string(&t, m->run_id);
    text_printf(&t, ",\n\"files\": [{\"name\": \"%s\", \"n_bytes\": %" PRId64 ", \"gaps\": [",
                CKPT_FILE, m->n_bytes);
    for (int64_t i = 0; i < m->n_gaps; i++)
        text_printf(&t, "%s[%" PRId64 ", %" PRId64 ", \"%016" PRIx64 "\"]", i ? ", " : "",
                    m->gaps[i].offset, m->gaps[i].n_bytes, m->gaps[i].hash);
    text_printf(&t, "]}],\n\"arrays\": [");
    for (int i = 0; i < m->n_arrays; i++)
        put_array(&t, m, i);
    text_printf(&t, "],\n\"meta\": %s,\n", m->meta_text);
    manifest_tail(t.s, t.n_bytes, tail);
    text_printf(&t, "%s", tail);
    int rc = file_write(path, t.s, t.n_bytes);
    text_clear(&t);
    return rc;
}
