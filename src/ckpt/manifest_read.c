/* manifest.json, read: untrusted input.  First its own checksum, then every name, number and
 * product, until arrays and gaps are known to tile the file. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MAX_BYTES = 1 << 30 };

static int get_children(const struct json *object, const char *key, enum json_type type,
                        const struct json **out)
{
    *out = json_get(object, key);
    if (!*out || (*out)->type != type)
        FAIL(ERR_DATA, "\"%s\" is missing or no %s", key, type == JSON_ARRAY ? "array" : "object");
    return ERR_OK;
}

static int as_hash(const struct json *j, uint64_t *hash)
{
    if (j->type != JSON_STRING || strlen(j->text) != 16 ||
        strspn(j->text, "0123456789abcdef") != 16)
        FAIL(ERR_DATA, "a checksum that is not 16 hexadecimal digits");
    *hash = strtoull(j->text, NULL, 16);
    return ERR_OK;
}

/* [number, number, checksum]: a range or a gap. */
static int as_triple(const struct json *j, int64_t *x, int64_t *y, uint64_t *hash)
{
    if (j->type != JSON_ARRAY || j->n_children != 3)
        FAIL(ERR_DATA, "a range that is not [number, number, checksum]");
    TRY(json_as_i64(j->child, x));
    TRY(json_as_i64(j->child->next, y));
    return as_hash(j->child->next->next, hash);
}

static int read_shape(const struct json *object, struct shape *shape)
{
    const struct json *dims;
    TRY(get_children(object, "shape", JSON_ARRAY, &dims));
    if (dims->n_children > SHAPE_MAX_DIMS)
        FAIL(ERR_DATA, "a shape of %d dimensions; at most %d are possible", dims->n_children,
             SHAPE_MAX_DIMS);
    for (const struct json *d = dims->child; d; d = d->next)
        TRY(json_as_i64(d, &shape->dim[shape->n_dims++]));
    return ERR_OK;
}

static int get_optional(const struct json *object, const char *key, const char **v)
{
    return json_get(object, key) ? json_get_string(object, key, v) : ERR_OK;
}

static int read_array(const struct json *j, struct ckpt_array *x, int64_t *offset)
{
    const char *dtype;
    TRY(json_get_string(j, "group", &x->group));
    TRY(json_get_string(j, "name", &x->name));
    TRY(json_get_string(j, "dtype", &dtype));
    TRY(dtype_parse(dtype, &x->dtype));
    TRY(get_optional(j, "layout", &x->layout));
    TRY(get_optional(j, "alias", &x->alias));
    TRY(read_shape(j, &x->shape));
    TRY(json_get_i64(j, "offset", offset));
    return array_check(x, ERR_DATA);
}

static int read_ranges(const struct json *list, struct manifest *m, int i)
{
    const struct ckpt_array *x = &m->arrays[i];
    int64_t at = 0, n_elem = shape_elems(&x->shape);
    int64_t most = CKPT_CUT_BYTES / (int64_t)dtype_bytes(x->dtype);
    struct ckpt_range *r = m->ranges + m->first_range[i];
    for (const struct json *j = list->child; j; j = j->next, r++) {
        TRY(as_triple(j, &r->begin, &r->end, &r->hash));
        r->array = i;
        if (r->begin != at || r->end <= at || r->end > n_elem || r->end - at > most)
            FAIL(ERR_DATA, "%s/%s: the range [%lld, %lld) does not go on at %lld of %lld", x->group,
                 x->name, (long long)r->begin, (long long)r->end, (long long)at, (long long)n_elem);
        at = r->end;
    }
    if (at != n_elem)
        FAIL(ERR_DATA, "%s/%s: its ranges end at element %lld of %lld", x->group, x->name,
             (long long)at, (long long)n_elem);
    m->first_range[i + 1] = m->first_range[i] + list->n_children;
    return ERR_OK;
}

static int read_arrays(const struct json *root, struct arena *a, struct manifest *m)
{
    const struct json *list, *ranges;
    TRY(get_children(root, "arrays", JSON_ARRAY, &list));
    size_t n = (size_t)list->n_children, n_ranges = 0;
    if (n == 0)
        FAIL(ERR_DATA, "it lists no arrays");
    struct ckpt_array *arrays = arena_alloc(a, n * sizeof *arrays);
    m->arrays = arrays;
    m->n_arrays = list->n_children;
    m->offset = arena_alloc(a, n * sizeof *m->offset);
    m->first_range = arena_alloc(a, (n + 1) * sizeof *m->first_range);
    int i = 0;
    for (const struct json *j = list->child; j; j = j->next, i++) {
        TRY(read_array(j, &arrays[i], &m->offset[i]));
        TRY(get_children(j, "ranges", JSON_ARRAY, &ranges));
        n_ranges += (size_t)ranges->n_children;
    }
    m->ranges = arena_alloc(a, n_ranges * sizeof *m->ranges);
    i = 0;
    for (const struct json *j = list->child; j; j = j->next, i++)
        TRY(read_ranges(json_get(j, "ranges"), m, i));
    return ERR_OK;
}

/* The gaps must be those that the arrays leave. */
static int read_file(const struct json *root, struct arena *a, struct manifest *m)
{
    const struct json *files, *gaps;
    const char *name;
    TRY(get_children(root, "files", JSON_ARRAY, &files));
    if (files->n_children != 1)
        FAIL(ERR_DATA, "%d files; this version reads checkpoints of one file", files->n_children);
    TRY(json_get_string(files->child, "name", &name));
    if (strcmp(name, CKPT_FILE) != 0)
        FAIL(ERR_DATA, "a file called \"%.100s\", not %s", name, CKPT_FILE);
    TRY(json_get_i64(files->child, "n_bytes", &m->n_bytes));
    TRY(get_children(files->child, "gaps", JSON_ARRAY, &gaps));
    m->n_gaps = gaps->n_children;
    TRY(gaps_find(m, a, ERR_DATA, &m->gaps, &m->n_gaps));
    struct ckpt_gap *g = m->gaps;
    for (const struct json *j = gaps->child; j; j = j->next, g++) {
        int64_t offset = 0, n_bytes = 0;
        TRY(as_triple(j, &offset, &n_bytes, &g->hash));
        if (offset != g->offset || n_bytes != g->n_bytes)
            FAIL(ERR_DATA, "%lld bytes at %lld where %lld at %lld belong to no array",
                 (long long)n_bytes, (long long)offset, (long long)g->n_bytes,
                 (long long)g->offset);
    }
    return ERR_OK;
}

static int parse(const char *text, size_t n_bytes, struct arena *a, struct manifest *m)
{
    char tail[64];
    manifest_tail("", 0, tail);
    size_t n_tail = strlen(tail);
    if (n_bytes < n_tail)
        FAIL(ERR_DATA, "only %zu bytes: it is not complete", n_bytes);
    manifest_tail(text, n_bytes - n_tail, tail);
    if (memcmp(text + n_bytes - n_tail, tail, n_tail) != 0)
        FAIL(ERR_DATA, "its checksum is wrong: it is damaged or was edited");
    const struct json *root;
    const char *format;
    TRY(json_parse(text, n_bytes, a, &root));
    TRY(json_get_string(root, "format", &format));
    if (strcmp(format, CKPT_FORMAT) != 0)
        FAIL(ERR_DATA, "format \"%.100s\"; this version reads \"%s\"", format, CKPT_FORMAT);
    TRY(json_get_i64(root, "step", &m->step));
    if (m->step < 0)
        FAIL(ERR_DATA, "step %lld", (long long)m->step);
    TRY(json_get_string(root, "run_id", &m->run_id));
    TRY(get_children(root, "meta", JSON_OBJECT, &m->meta));
    TRY(read_arrays(root, a, m));
    return read_file(root, a, m);
}

int manifest_read(const char *path, struct arena *a, struct manifest *m)
{
    char *text;
    size_t n_bytes;
    *m = (struct manifest){0};
    TRY(file_read(path, MANIFEST_MAX_BYTES, ERR_DATA, &text, &n_bytes));
    int rc = parse(text, n_bytes, a, m);
    free(text);
    if (rc != ERR_OK)
        err_prefix("%s", path);
    return rc;
}
