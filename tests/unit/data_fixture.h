/* What the data tests share: a scratch folder, files in it, sources opened from key=value words. */
#pragma once
#include "base/file.h"
#include "check.h"
#include "data/data_impl.h"

#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

struct fixture {
    char dir[64];
    char path[128]; /* of the file last written */
    struct arena *arena;
    struct data_conf conf;
    struct data *data;
    const struct data *like; /* for the next source that is opened */
};

static inline void fixture_init(struct fixture *f)
{
    *f = (struct fixture){.dir = "/tmp/stretto-data-XXXXXX"};
    if (!mkdtemp(f->dir))
        FATAL("cannot make a scratch folder");
    f->arena = arena_create();
}

static inline void fixture_clear(struct fixture *f)
{
    data_close(&f->data);
    file_remove_tree(f->dir);
    arena_destroy(&f->arena);
}

/* Write bytes as name; returns the path, good until the next call. */
static inline const char *fixture_file(struct fixture *f, const char *name, const void *bytes,
                                       size_t n_bytes)
{
    snprintf(f->path, sizeof f->path, "%s/%s", f->dir, name);
    if (file_write(f->path, bytes, n_bytes) != ERR_OK)
        FATAL("%s", err_text());
    return f->path;
}

/* The same, packed; mode "wb" begins the file, "ab" adds a member. */
static inline const char *fixture_gzip(struct fixture *f, const char *name, const void *bytes,
                                       size_t n_bytes, const char *mode)
{
    snprintf(f->path, sizeof f->path, "%s/%s", f->dir, name);
    gzFile z = gzopen(f->path, mode);
    if (!z || gzwrite(z, bytes, (unsigned)n_bytes) != (int)n_bytes || gzclose(z) != Z_OK)
        FATAL("cannot write %s", f->path);
    return f->path;
}

static inline int fixture_set(const struct opt *opts, const char *word, void *conf, struct arena *a)
{
    char key[64];
    size_t n = strcspn(word, "=");
    snprintf(key, sizeof key, "%.*s", (int)n, word);
    const struct opt *o = opt_find(opts, key);
    if (!o)
        return -1;
    return opt_parse(o, arena_strdup(a, word + n + 1), conf, a);
}

/* Open path with settings "key=value|key=value" over the defaults, then cut for T. */
static inline int fixture_open(struct fixture *f, const char *path, const char *settings,
                               const struct vocab *known, int64_t T)
{
    static _Alignas(16) char own[1 << 12];
    const struct data_ops *ops;
    const char *bad_key;
    data_close(&f->data);
    TRY(opt_defaults(data_opts, &f->conf, f->arena));
    f->conf.path = arena_strdup(f->arena, path);
    char *words = arena_strdup(f->arena, settings), *rest = words;
    char *word[16];
    int n = 0;
    for (char *w = strtok_r(words, "|", &rest); w && n < 16; w = strtok_r(NULL, "|", &rest))
        word[n++] = w;
    for (int i = 0; i < n; i++)
        if (fixture_set(data_opts, word[i], &f->conf, f->arena) == ERR_OK)
            word[i] = NULL;
    TRY(data_type_of(&f->conf, &ops, &bad_key));
    if (ops->conf_bytes > sizeof own)
        FATAL("a conf is larger than the fixture's");
    memset(own, 0, sizeof own);
    TRY(opt_defaults(ops->opts, own, f->arena));
    for (int i = 0; i < n; i++)
        if (word[i] && fixture_set(ops->opts, word[i], own, f->arena) != ERR_OK)
            FATAL("the test sets %s: %s", word[i], err_text());
    TRY(data_open(ops, &f->conf, own, 1337, known, f->like, f->arena, &f->data));
    return f->data->ops->cut(f->data, T);
}
