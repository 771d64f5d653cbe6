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

static void put_file(struct text *t, const struct manifest *m, int f)
{
    const struct ckpt_file *x = &m->files[f];
    text_printf(t, "%s\n  {", f ? "," : "");
    put_member(t, "name", x->name);
    text_printf(t, "\"n_bytes\": %" PRId64 ", \"hash\": \"%016" PRIx64 "\", \"gaps\": [",
                x->n_bytes, x->hash);
    for (int64_t i = m->first_gap[f]; i < m->first_gap[f + 1]; i++)
        text_printf(t, "%s[%" PRId64 ", %" PRId64 ", \"%016" PRIx64 "\"]",
                    i > m->first_gap[f] ? ", " : "", m->gaps[i].offset, m->gaps[i].n_bytes,
                    m->gaps[i].hash);
    text_printf(t, "]}");
}

/* Does r go on where the range before it ends, in the same file? */
static bool goes_on(const struct manifest *m, int64_t r)
{
    const struct ckpt_range *x = &m->ranges[r - 1], *y = &m->ranges[r];
    int64_t elem_bytes = (int64_t)dtype_bytes(m->arrays[x->array].dtype);
    return x->file == y->file && x->offset + (x->end - x->begin) * elem_bytes == y->offset;
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
    text_printf(t, "\"pieces\": [");
    for (int64_t r = m->first_range[i]; r < m->first_range[i + 1]; r++) {
        const struct ckpt_range *y = &m->ranges[r];
        bool first = r == m->first_range[i], same = !first && goes_on(m, r);
        if (!same)
            text_printf(t, "%s{\"file\": %" PRId64 ", \"offset\": %" PRId64 ", \"ranges\": [",
                        first ? "" : "]}, ", y->file, y->offset);
        text_printf(t, "%s[%" PRId64 ", %" PRId64 ", \"%016" PRIx64 "\"]", same ? ", " : "",
                    y->begin, y->end, y->hash);
    }
    text_printf(t, "]}]}");
}

int manifest_write(const struct manifest *m, const char *path)
{
    struct text t = {0};
    char tail[64];
    text_printf(&t, "{\"format\": \"%s\",\n\"step\": %" PRId64 ",\n", CKPT_FORMAT, m->step);
    text_printf(&t, "\"run_id\": ");
    text_json_string(&t, m->run_id);
    text_printf(&t, ",\n\"state_dict_type\": \"%s\",\n\"files\": [", ckpt_type_words[m->type]);
    for (int f = 0; f < m->n_files; f++)
        put_file(&t, m, f);
    text_printf(&t, "],\n\"arrays\": [");
    for (int i = 0; i < m->n_arrays; i++)
        put_array(&t, m, i);
    text_printf(&t, "],\n\"meta\": %s,\n", m->meta_text);
    manifest_tail(t.s, t.n_bytes, tail);
    text_printf(&t, "%s", tail);
    int rc = file_write(path, t.s, t.n_bytes);
    text_clear(&t);
    return rc;
}
