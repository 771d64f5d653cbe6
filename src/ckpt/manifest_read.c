/* manifest.json, read: untrusted input.  First its own checksum, then every name, number and
 * product, until arrays and gaps are known to tile the files. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static int read_array(const struct json *j, struct ckpt_array *x)
{
    const char *dtype;
    TRY(json_get_string(j, "group", &x->group));
    TRY(json_get_string(j, "name", &x->name));
    TRY(json_get_string(j, "dtype", &dtype));
    TRY(dtype_parse(dtype, &x->dtype));
    TRY(get_optional(j, "layout", &x->layout));
    TRY(get_optional(j, "alias", &x->alias));
    TRY(read_shape(j, &x->shape));
    return array_check(x, ERR_DATA);
}

/* The ranges of one piece, from element *at on. */
static int read_piece(const struct json *j, struct manifest *m, int i, struct ckpt_range **next,
                      int64_t *at)
{
    const struct ckpt_array *x = &m->arrays[i];
    const struct json *list = json_get(j, "ranges");
    int64_t n_elem = shape_elems(&x->shape), elem_bytes = (int64_t)dtype_bytes(x->dtype);
    int64_t most = CKPT_CUT_BYTES / elem_bytes, file = 0, offset = 0;
    TRY(json_get_i64(j, "file", &file));
    TRY(json_get_i64(j, "offset", &offset));
    if (file < 0 || file >= m->n_files)
        FAIL(ERR_DATA, "%s/%s: in file %lld of %d", x->group, x->name, (long long)file, m->n_files);
    for (const struct json *r = list->child; r; r = r->next) {
        struct ckpt_range *y = (*next)++;
        TRY(as_triple(r, &y->begin, &y->end, &y->hash));
        y->array = i;
        y->file = file;
        y->offset = offset;
        if (y->begin != *at || y->end <= *at || y->end > n_elem || y->end - *at > most)
            FAIL(ERR_DATA, "%s/%s: the range [%lld, %lld) does not go on at %lld of %lld", x->group,
                 x->name, (long long)y->begin, (long long)y->end, (long long)*at,
                 (long long)n_elem);
        *at = y->end;
        if (__builtin_add_overflow(offset, (y->end - y->begin) * elem_bytes, &offset))
            FAIL(ERR_DATA, "%s/%s: its place is beyond 64 bits", x->group, x->name);
    }
    return ERR_OK;
}

static int read_ranges(const struct json *pieces, struct manifest *m, int i)
{
    const struct ckpt_array *x = &m->arrays[i];
    struct ckpt_range *next = m->ranges + m->first_range[i];
    int64_t at = 0, n_elem = shape_elems(&x->shape);
    for (const struct json *j = pieces->child; j; j = j->next)
        TRY(read_piece(j, m, i, &next, &at));
    if (at != n_elem)
        FAIL(ERR_DATA, "%s/%s: its ranges end at element %lld of %lld", x->group, x->name,
             (long long)at, (long long)n_elem);
    m->first_range[i + 1] = next - m->ranges;
    return ERR_OK;
}

static int count_ranges(const struct json *array, size_t *n)
{
    const struct json *pieces, *ranges;
    TRY(get_children(array, "pieces", JSON_ARRAY, &pieces));
    for (const struct json *j = pieces->child; j; j = j->next) {
        TRY(get_children(j, "ranges", JSON_ARRAY, &ranges));
        *n += (size_t)ranges->n_children;
    }
    return ERR_OK;
}

static int read_arrays(const struct json *root, struct arena *a, struct manifest *m)
{
    const struct json *list;
    TRY(get_children(root, "arrays", JSON_ARRAY, &list));
    size_t n = (size_t)list->n_children, n_ranges = 0;
    if (n == 0)
        FAIL(ERR_DATA, "it lists no arrays");
    struct ckpt_array *arrays = arena_alloc(a, n * sizeof *arrays);
    m->arrays = arrays;
    m->n_arrays = list->n_children;
    m->first_range = arena_alloc(a, (n + 1) * sizeof *m->first_range);
    int i = 0;
    for (const struct json *j = list->child; j; j = j->next, i++) {
        TRY(read_array(j, &arrays[i]));
        TRY(count_ranges(j, &n_ranges));
    }
    m->ranges = arena_alloc(a, n_ranges * sizeof *m->ranges);
    i = 0;
    for (const struct json *j = list->child; j; j = j->next, i++)
        TRY(read_ranges(json_get(j, "pieces"), m, i));
    return ERR_OK;
}

static int read_type(const struct json *root, enum ckpt_type *type)
{
    const char *word;
    TRY(json_get_string(root, "state_dict_type", &word));
    for (int i = 0; ckpt_type_words[i]; i++)
        if (strcmp(ckpt_type_words[i], word) == 0) {
            *type = (enum ckpt_type)i;
            return ERR_OK;
        }
    FAIL(ERR_DATA, "state_dict_type \"%.100s\" is not known", word);
}

/* Names follow from type and number, so a manifest cannot name anything outside of its folder. */
static int read_files(const struct json *root, struct arena *a, struct manifest *m)
{
    const struct json *list, *gaps;
    TRY(get_children(root, "files", JSON_ARRAY, &list));
    m->n_files = list->n_children;
    if (m->n_files < 1 || (m->type == CKPT_FULL && m->n_files != 1))
        FAIL(ERR_DATA, "%d files in a %s", m->n_files, ckpt_type_words[m->type]);
    size_t n = (size_t)m->n_files;
    m->files = arena_alloc(a, n * sizeof *m->files);
    m->first_gap = arena_alloc(a, (n + 1) * sizeof *m->first_gap);
    int f = 0;
    for (const struct json *j = list->child; j; j = j->next, f++) {
        struct ckpt_file *x = &m->files[f];
        TRY(json_get_string(j, "name", &x->name));
        const char *want = place_name(m->type, f, m->n_files, a);
        if (strcmp(x->name, want) != 0)
            FAIL(ERR_DATA, "a file called \"%.100s\", not %s", x->name, want);
        TRY(json_get_i64(j, "n_bytes", &x->n_bytes));
        if (!json_get(j, "hash"))
            FAIL(ERR_DATA, "\"hash\" of %s is missing", want);
        TRY(as_hash(json_get(j, "hash"), &x->hash));
        TRY(get_children(j, "gaps", JSON_ARRAY, &gaps));
        m->n_gaps += gaps->n_children;
        m->first_gap[f + 1] = m->n_gaps;
    }
    return ERR_OK;
}

static int find_gaps(struct arena *a, struct manifest *m)
{
    int64_t n = m->first_range[m->n_arrays];
    struct file_span *s = arena_alloc(a, ((size_t)n + 1) * sizeof *s);
    for (int64_t i = 0; i < n; i++) {
        const struct ckpt_range *r = &m->ranges[i];
        const struct ckpt_array *x = &m->arrays[r->array];
        s[i] = (struct file_span){r->file, r->offset, 0, x};
        if (__builtin_add_overflow(r->offset, (r->end - r->begin) * (int64_t)dtype_bytes(x->dtype),
                                   &s[i].end))
            FAIL(ERR_DATA, "%s/%s: its place is beyond 64 bits", x->group, x->name);
    }
    return gaps_find(s, n, m->files, m->n_files, a, ERR_DATA, m->n_gaps, &m->gaps, &m->n_gaps);
}

/* The gaps must be those that the arrays leave, and a file's hash that of its parts. */
static int read_gaps(const struct json *root, struct arena *a, struct manifest *m)
{
    TRY(find_gaps(a, m));
    struct ckpt_gap *g = m->gaps;
    int f = 0;
    for (const struct json *file = json_get(root, "files")->child; file; file = file->next, f++)
        for (const struct json *j = json_get(file, "gaps")->child; j; j = j->next, g++) {
            int64_t offset = 0, n_bytes = 0;
            TRY(as_triple(j, &offset, &n_bytes, &g->hash));
            if (g->file != f || offset != g->offset || n_bytes != g->n_bytes)
                FAIL(ERR_DATA, "%lld bytes at %lld where %lld at %lld belong to no array",
                     (long long)n_bytes, (long long)offset, (long long)g->n_bytes,
                     (long long)g->offset);
        }
    uint64_t *hash = arena_alloc(a, (size_t)m->n_files * sizeof *hash);
    files_hash(m, a, hash);
    for (f = 0; f < m->n_files; f++)
        if (hash[f] != m->files[f].hash)
            FAIL(ERR_DATA, "the hash of %s is not that of its parts", m->files[f].name);
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
    TRY(read_type(root, &m->type));
    TRY(read_files(root, a, m));
    TRY(read_arrays(root, a, m));
    return read_gaps(root, a, m);
}

int manifest_parse(const char *path, const char *text, size_t n_bytes, struct arena *a,
                   struct manifest *m)
{
    *m = (struct manifest){0};
    int rc = parse(text, n_bytes, a, m);
    if (rc != ERR_OK)
        err_prefix("%s", path);
    return rc;
}

int manifest_read(const char *path, struct arena *a, struct manifest *m)
{
    char *text;
    size_t n_bytes;
    TRY(file_read(path, CKPT_MANIFEST_MAX_BYTES, ERR_DATA, &text, &n_bytes));
    int rc = manifest_parse(path, text, n_bytes, a, m);
    free(text);
    return rc;
}

/* What stands before state_dict_type closes to an object of its own. */
static int parse_head(char *head, struct arena *a, const char **run_id)
{
    char *end = strstr(head, ",\n\"state_dict_type\"");
    const struct json *root;
    const char *format;
    if (!end)
        FAIL(ERR_DATA, "it does not begin as a manifest does");
    memcpy(end, "}", 2);
    TRY(json_parse(head, strlen(head), a, &root));
    TRY(json_get_string(root, "format", &format));
    if (strcmp(format, CKPT_FORMAT) != 0)
        FAIL(ERR_DATA, "format \"%.100s\"; this version reads \"%s\"", format, CKPT_FORMAT);
    return json_get_string(root, "run_id", run_id);
}

int manifest_read_run(const char *path, struct arena *a, const char **run_id)
{
    enum { HEAD_BYTES = 4096 };
    char head[HEAD_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        FAIL(ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    ssize_t n = pread(fd, head, HEAD_BYTES, 0);
    int rc = n < 0 ? err_set(ERR_DATA, "cannot read it: %s", strerror(errno)) : ERR_OK;
    close(fd);
    head[n < 0 ? 0 : n] = 0;
    if (rc == ERR_OK)
        rc = parse_head(head, a, run_id);
    if (rc != ERR_OK)
        err_prefix("%s", path);
    return rc;
}
