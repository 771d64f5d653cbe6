/* Several safetensors files with an index, or a folder that holds one file or an index, as
 * Hugging Face's save_pretrained writes them. */
#include "base/file.h"
#include "ckpt/safetensors.h"
#include "ckpt/source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDEX_NAME "model.safetensors.index.json"
#define FILE_NAME "model.safetensors"

enum { INDEX_MAX_BYTES = 100 << 20, MAX_FILES = 10000 };

static bool there(const char *folder, const char *name)
{
    struct text path = {0};
    text_printf(&path, "%s/%s", folder, name);
    bool is = access(path.s, F_OK) == 0;
    text_clear(&path);
    return is;
}

static bool index_fits(const char *path, bool is_dir, const unsigned char head[8])
{
    (void)head;
    size_t n = strlen(path), m = strlen(".safetensors.index.json");
    if (is_dir)
        return there(path, INDEX_NAME) || there(path, FILE_NAME);
    return n > m && strcmp(path + n - m, ".safetensors.index.json") == 0;
}

/* One tensor of the index: where it is said to be. */
struct entry {
    const char *name, *file;
    int number; /* of the file */
    bool found;
};

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* A name of a file beside the index, not a way out of its folder. */
static int check_file_name(const char *name, const char *file)
{
    if (!*file || strchr(file, '/') || strcmp(file, ".") == 0 || strcmp(file, "..") == 0)
        FAIL(ERR_DATA, "\"%.200s\" is in \"%.200s\", which is no file beside the index", name,
             file);
    return ERR_OK;
}

static int read_index(struct source *s, const char *text, size_t n_bytes, struct entry **out,
                      int *n)
{
    const struct json *root, *map;
    TRY(json_parse(text, n_bytes, s->arena, &root));
    map = json_get(root, "weight_map");
    if (!map || map->type != JSON_OBJECT || map->n_children < 1)
        FAIL(ERR_DATA, "\"weight_map\" is missing, empty or no object");
    struct entry *e = arena_alloc(s->arena, (size_t)map->n_children * sizeof *e);
    *n = 0;
    for (const struct json *j = map->child; j; j = j->next) {
        if (j->type != JSON_STRING)
            FAIL(ERR_DATA, "\"%.200s\" is in no file", j->key);
        TRY(check_file_name(j->key, j->text));
        e[(*n)++] = (struct entry){.name = j->key, .file = j->text};
    }
    qsort(e, (size_t)*n, sizeof *e, by_name);
    *out = e;
    return ERR_OK;
}

/* The files that the entries name, each once; gives the entries their numbers. */
static int number_files(struct source *s, struct entry *e, int n, const char ***files, int *n_files)
{
    const char **f = arena_alloc(s->arena, (size_t)n * sizeof *f);
    *n_files = 0;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < *n_files && strcmp(f[k], e[i].file) != 0)
            k++;
        if (k == *n_files)
            f[(*n_files)++] = e[i].file;
        if (*n_files > MAX_FILES)
            FAIL(ERR_DATA, "more than %d files", MAX_FILES);
        e[i].number = k;
    }
    *files = f;
    return ERR_OK;
}

static int take_file(struct source *s, struct source_files *f, int number, struct entry *e, int n,
                     struct ckpt_array *arrays, const char **dtype_words)
{
    struct safetensors_header h;
    int64_t n_bytes;
    TRY(source_open_file(f->path[number], &f->fd[number], &n_bytes));
    TRY(safetensors_read_header(f->fd[number], f->path[number], n_bytes, s->arena, &h));
    if (!s->meta)
        s->meta = h.metadata;
    for (int i = 0; i < h.n; i++) {
        struct entry key = {.name = h.arrays[i].name};
        struct entry *hit = bsearch(&key, e, (size_t)n, sizeof *e, by_name);
        if (!hit || hit->number != number)
            FAIL(ERR_DATA, "%s holds \"%.200s\", which the index %s%s", f->path[number], key.name,
                 hit ? "places in " : "does not know", hit ? hit->file : "");
        hit->found = true;
        arrays[hit - e] = h.arrays[i];
        dtype_words[hit - e] = h.dtype_words[i];
        f->place[hit - e] = (struct source_place){number, h.offset[i]};
    }
    return ERR_OK;
}

static int open_index(struct source *s, const char *folder)
{
    char *text;
    size_t n_bytes;
    struct entry *e = NULL;
    const char **files = NULL;
    int n = 0, n_files = 0;
    TRY(file_read(s->path, INDEX_MAX_BYTES, ERR_DATA, &text, &n_bytes));
    int rc = read_index(s, text, n_bytes, &e, &n);
    if (rc == ERR_OK)
        rc = number_files(s, e, n, &files, &n_files);
    free(text);
    if (rc != ERR_OK) {
        err_prefix("%s", s->path);
        return rc;
    }
    struct source_files *f = source_files_new(s, n_files, n);
    struct ckpt_array *arrays = arena_alloc(s->arena, (size_t)n * sizeof *arrays);
    const char **dtype_words = arena_alloc(s->arena, (size_t)n * sizeof *dtype_words);
    for (int i = 0; i < n_files; i++) {
        f->path[i] = arena_printf(s->arena, "%s/%s", folder, files[i]);
        TRY(take_file(s, f, i, e, n, arrays, dtype_words));
    }
    for (int i = 0; i < n; i++)
        if (!e[i].found)
            FAIL(ERR_DATA, "%s places \"%.200s\" in %s, which does not hold it", s->path, e[i].name,
                 e[i].file);
    s->arrays = arrays;
    s->n_arrays = n;
    s->dtype_words = dtype_words;
    return source_config(s, folder);
}

static int index_open(struct source *s)
{
    size_t n = strlen(s->path);
    if (n > 5 && strcmp(s->path + n - 5, ".json") == 0) {
        const char *slash = strrchr(s->path, '/');
        return open_index(s, slash ? arena_strndup(s->arena, s->path, (size_t)(slash - s->path))
                                   : ".");
    }
    const char *folder = s->path;
    if (there(folder, INDEX_NAME)) {
        s->path = arena_printf(s->arena, "%s/%s", folder, INDEX_NAME);
        return open_index(s, folder);
    }
    s->path = arena_printf(s->arena, "%s/%s", folder, FILE_NAME);
    return safetensors_source.open(s);
}

const struct source_ops index_source = {
    .name = "safetensors",
    .fits = index_fits,
    .open = index_open,
    .read = source_files_read,
    .close = source_files_close,
};
