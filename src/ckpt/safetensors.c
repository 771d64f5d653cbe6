/* Reading safetensors: untrusted input, so every number is proved before it is used. */
#include "ckpt/safetensors.h"

#include "base/file.h"
#include "ckpt/ckpt_impl.h"
#include "ckpt/source.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The format's words.  Those that are not ours are known by size: files hold buffers of them. */
static const struct {
    const char *word;
    int64_t n_bytes;
    enum dtype dtype;
} words[] = {
    {"F32", 4, DTYPE_F32},    {"F64", 8, DTYPE_F64},       {"BF16", 2, DTYPE_BF16},
    {"F16", 2, DTYPE_F16},    {"I32", 4, DTYPE_I32},       {"I64", 8, DTYPE_I64},
    {"U64", 8, DTYPE_COUNT},  {"U32", 4, DTYPE_COUNT},     {"U16", 2, DTYPE_COUNT},
    {"I16", 2, DTYPE_COUNT},  {"U8", 1, DTYPE_COUNT},      {"I8", 1, DTYPE_COUNT},
    {"BOOL", 1, DTYPE_COUNT}, {"F8_E4M3", 1, DTYPE_COUNT}, {"F8_E5M2", 1, DTYPE_COUNT},
};

struct extent {
    int64_t begin, end;
    const char *name;
};

static int find_dtype(const char *word, const char *name, int64_t *n_bytes, enum dtype *t)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].word, word) == 0) {
            *n_bytes = words[i].n_bytes;
            *t = words[i].dtype;
            return ERR_OK;
        }
    FAIL(ERR_DATA, "\"%.200s\": unknown dtype \"%.40s\"", name, word);
}

static int read_shape(const struct json *j, const char *name, struct shape *shape, int64_t *n_elem)
{
    if (!j || j->type != JSON_ARRAY || j->n_children > SHAPE_MAX_DIMS)
        FAIL(ERR_DATA, "\"%.200s\": its shape is no list of at most %d numbers", name,
             SHAPE_MAX_DIMS);
    *n_elem = 1;
    for (const struct json *d = j->child; d; d = d->next) {
        int64_t v = 0;
        TRY(json_as_i64(d, &v));
        if (v < 1 || __builtin_mul_overflow(*n_elem, v, n_elem))
            FAIL(ERR_DATA, "\"%.200s\": dimension %d is %lld, which is none or beyond 64 bits",
                 name, shape->n_dims, (long long)v);
        shape->dim[shape->n_dims++] = v;
    }
    return ERR_OK;
}

static int read_offsets(const struct json *j, const char *name, int64_t n_data, struct extent *s)
{
    if (!j || j->type != JSON_ARRAY || j->n_children != 2)
        FAIL(ERR_DATA, "\"%.200s\": data_offsets are no two numbers", name);
    TRY(json_as_i64(j->child, &s->begin));
    TRY(json_as_i64(j->child->next, &s->end));
    s->name = name;
    if (s->begin < 0 || s->end < s->begin || s->end > n_data)
        FAIL(ERR_DATA, "\"%.200s\": data_offsets [%lld, %lld) leave the %lld bytes of values", name,
             (long long)s->begin, (long long)s->end, (long long)n_data);
    return ERR_OK;
}

static int read_tensor(const struct json *j, int64_t n_data, struct ckpt_array *x,
                       const char **word, struct extent *s)
{
    int64_t elem_bytes = 0, n_elem = 0, n_bytes = 0;
    if (j->type != JSON_OBJECT)
        FAIL(ERR_DATA, "\"%.200s\" is no object", j->key);
    *x = (struct ckpt_array){.group = "model", .name = j->key};
    TRY(json_get_string(j, "dtype", word));
    TRY(find_dtype(*word, j->key, &elem_bytes, &x->dtype));
    TRY(read_shape(json_get(j, "shape"), j->key, &x->shape, &n_elem));
    TRY(read_offsets(json_get(j, "data_offsets"), j->key, n_data, s));
    if (__builtin_mul_overflow(n_elem, elem_bytes, &n_bytes) || n_bytes != s->end - s->begin)
        FAIL(ERR_DATA, "\"%.200s\": %lld elements of %s are not the %lld bytes of [%lld, %lld)",
             j->key, (long long)n_elem, *word, (long long)(s->end - s->begin), (long long)s->begin,
             (long long)s->end);
    struct ckpt_array named = *x;
    if (x->dtype == DTYPE_COUNT)
        named.dtype = DTYPE_F32; /* the name is what is looked at */
    return array_check(&named, ERR_DATA);
}

static int by_begin(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Values follow each other from the first byte to the last. */
static int check_cover(struct extent *s, int n, int64_t n_data)
{
    qsort(s, (size_t)n, sizeof *s, by_begin);
    int64_t at = 0;
    for (int i = 0; i < n; at = s[i++].end) {
        if (s[i].begin < at)
            FAIL(ERR_DATA, "\"%.200s\" and \"%.200s\" overlap at byte %lld", s[i - 1].name,
                 s[i].name, (long long)s[i].begin);
        if (s[i].begin > at)
            FAIL(ERR_DATA, "bytes [%lld, %lld) before \"%.200s\" belong to no tensor",
                 (long long)at, (long long)s[i].begin, s[i].name);
    }
    if (at != n_data)
        FAIL(ERR_DATA, "the tensors end at byte %lld, the values have %lld", (long long)at,
             (long long)n_data);
    return ERR_OK;
}

static int check_metadata(const struct json *m)
{
    if (m->type != JSON_OBJECT)
        FAIL(ERR_DATA, "__metadata__ is no object");
    for (const struct json *j = m->child; j; j = j->next)
        if (j->type != JSON_STRING)
            FAIL(ERR_DATA, "__metadata__: \"%.200s\" is not a text", j->key);
    return ERR_OK;
}

int safetensors_parse(const char *bytes, size_t n_header, int64_t n_file, struct arena *a,
                      struct safetensors_header *out)
{
    const struct json *root;
    *out = (struct safetensors_header){0};
    TRY(json_parse(bytes, n_header, a, &root));
    if (root->type != JSON_OBJECT)
        FAIL(ERR_DATA, "the header is no JSON object");
    size_t n_most = (size_t)root->n_children + 1;
    int64_t n_data = n_file - 8 - (int64_t)n_header;
    struct extent *spans = arena_alloc(a, n_most * sizeof *spans);
    out->arrays = arena_alloc(a, n_most * sizeof *out->arrays);
    out->dtype_words = arena_alloc(a, n_most * sizeof *out->dtype_words);
    out->offset = arena_alloc(a, n_most * sizeof *out->offset);
    for (const struct json *j = root->child; j; j = j->next) {
        if (strcmp(j->key, "__metadata__") == 0) {
            TRY(check_metadata(j));
            out->metadata = j;
            continue;
        }
        int i = out->n++;
        TRY(read_tensor(j, n_data, &out->arrays[i], &out->dtype_words[i], &spans[i]));
        out->offset[i] = 8 + (int64_t)n_header + spans[i].begin;
    }
    if (out->n == 0)
        FAIL(ERR_DATA, "it holds no tensors");
    return check_cover(spans, out->n, n_data);
}

int safetensors_read_header(int fd, const char *path, int64_t n_file, struct arena *a,
                            struct safetensors_header *out)
{
    unsigned char head[8];
    uint64_t n_header = 0;
    if (n_file < 8)
        FAIL(ERR_DATA, "%s: %lld bytes are no safetensors file", path, (long long)n_file);
    TRY(file_pread_fd(fd, path, head, sizeof head, 0));
    for (int i = 7; i >= 0; i--)
        n_header = n_header << 8 | head[i];
    if (n_header > SAFETENSORS_MAX_HEADER || n_header > (uint64_t)(n_file - 8))
        FAIL(ERR_DATA, "%s: a header of %llu bytes; the file has %lld, and %d are allowed", path,
             (unsigned long long)n_header, (long long)n_file, SAFETENSORS_MAX_HEADER);
    char *bytes = malloc((size_t)n_header + 1);
    if (!bytes)
        FAIL(ERR_RESOURCE, "no memory for the header of %s", path);
    int rc = file_pread_fd(fd, path, bytes, (size_t)n_header, 8);
    if (rc == ERR_OK && (rc = safetensors_parse(bytes, (size_t)n_header, n_file, a, out)) != ERR_OK)
        err_prefix("%s", path);
    free(bytes);
    return rc;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool safetensors_fits(const char *path, bool is_dir, const unsigned char head[8])
{
    (void)head;
    return !is_dir && ends_with(path, ".safetensors");
}

static int safetensors_open(struct source *s)
{
    struct safetensors_header h;
    struct source_files *f = source_files_new(s, 1, 0);
    int64_t n_bytes;
    f->path[0] = s->path;
    TRY(source_open_file(s->path, &f->fd[0], &n_bytes));
    TRY(safetensors_read_header(f->fd[0], s->path, n_bytes, s->arena, &h));
    f->place = arena_alloc(s->arena, (size_t)h.n * sizeof *f->place);
    for (int i = 0; i < h.n; i++)
        f->place[i].offset = h.offset[i];
    s->arrays = h.arrays;
    s->n_arrays = h.n;
    s->dtype_words = h.dtype_words;
    s->meta = h.metadata;
    const char *slash = strrchr(s->path, '/');
    return source_config(s,
                         slash ? arena_strndup(s->arena, s->path, (size_t)(slash - s->path)) : ".");
}

const struct source_ops safetensors_source = {
    .name = "safetensors",
    .fits = safetensors_fits,
    .open = safetensors_open,
    .read = source_files_read,
    .close = source_files_close,
};
