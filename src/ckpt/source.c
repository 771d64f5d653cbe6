/* Opening a source by what its path and first bytes say, and what several formats share. */
#include "ckpt/source.h"

#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct source_ops *const source_list[] = {
    &checkpoint_source, &hdf5_source,        &index_source, &llama2c_source,
    &llmc_source,       &safetensors_source, NULL};

enum { CONFIG_MAX_BYTES = 16 << 20 };

int source_open_file(const char *path, int *fd, int64_t *n_bytes)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        FAIL(ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        *fd = -1;
        FAIL(ERR_DATA, "%s is not a regular file", path);
    }
    *n_bytes = st.st_size;
    return ERR_OK;
}

int source_config(struct source *s, const char *folder)
{
    const char *path = arena_printf(s->arena, "%s/config.json", folder);
    char *text;
    size_t n_bytes;
    if (access(path, F_OK) != 0)
        return ERR_OK;
    TRY(file_read(path, CONFIG_MAX_BYTES, ERR_DATA, &text, &n_bytes));
    int rc = json_parse(text, n_bytes, s->arena, &s->config);
    if (rc == ERR_OK && s->config->type != JSON_OBJECT)
        rc = err_set(ERR_DATA, "it holds no JSON object");
    free(text);
    if (rc != ERR_OK)
        err_prefix("%s", path);
    return rc;
}

struct source_files *source_files_new(struct source *s, int n_files, int n_arrays)
{
    struct source_files *f = arena_alloc(s->arena, sizeof *f);
    f->path = arena_alloc(s->arena, ((size_t)n_files + 1) * sizeof *f->path);
    f->fd = arena_alloc(s->arena, ((size_t)n_files + 1) * sizeof *f->fd);
    f->place = arena_alloc(s->arena, ((size_t)n_arrays + 1) * sizeof *f->place);
    f->n = n_files;
    for (int i = 0; i < n_files; i++)
        f->fd[i] = -1;
    s->impl = f;
    return f;
}

int source_files_read(const struct source *s, int i, int64_t begin, int64_t end, void *values)
{
    const struct source_files *f = s->impl;
    const struct source_place *p = &f->place[i];
    int64_t elem_bytes = (int64_t)dtype_bytes(s->arrays[i].dtype);
    return file_pread_fd(f->fd[p->file], f->path[p->file], values,
                         (size_t)((end - begin) * elem_bytes), p->offset + begin * elem_bytes);
}

void source_files_close(struct source *s)
{
    struct source_files *f = s->impl;
    for (int i = 0; f && i < f->n; i++)
        if (f->fd[i] >= 0)
            close(f->fd[i]);
}

int source_find(const struct source *s, const char *group, const char *name)
{
    for (int i = 0; i < s->n_arrays; i++)
        if (strcmp(s->arrays[i].name, name) == 0 && strcmp(s->arrays[i].group, group) == 0)
            return i;
    return -1;
}

int source_read(const struct source *s, int i, int64_t begin, int64_t end, void *values)
{
    REQUIRE(i >= 0 && i < s->n_arrays);
    const struct ckpt_array *x = &s->arrays[i];
    REQUIRE(begin >= 0 && begin <= end && end <= shape_elems(&x->shape));
    if (x->dtype == DTYPE_COUNT)
        FAIL(ERR_DATA, "%s: %s is of dtype %s, which this version does not read", s->path, x->name,
             s->dtype_words[i]);
    return begin == end ? ERR_OK : s->ops->read(s, i, begin, end, values);
}

static int no_format(const char *path, bool is_dir)
{
    if (is_dir)
        FAIL(ERR_DATA, "%s holds no complete checkpoint and no model.safetensors", path);
    FAIL(ERR_DATA,
         "%s is of no format that is read: a checkpoint's folder, .safetensors, "
         ".safetensors.index.json, .h5, llama2.c's .bin, llm.c's .bin",
         path);
}

static int open_source(struct source *s, const char *what)
{
    struct stat st;
    unsigned char head[8] = {0};
    size_t n = strlen(what);
    while (n > 1 && what[n - 1] == '/')
        n--;
    s->path = arena_strndup(s->arena, what, n);
    bool is_dir = stat(s->path, &st) != 0 || S_ISDIR(st.st_mode); /* `latest` may be broken */
    if (!is_dir) {
        int fd;
        int64_t n_bytes;
        TRY(source_open_file(s->path, &fd, &n_bytes));
        ssize_t got = pread(fd, head, sizeof head, 0);
        close(fd);
        if (got < 0)
            FAIL(ERR_DATA, "cannot read %s: %s", s->path, strerror(errno));
    }
    for (int i = 0; source_list[i]; i++)
        if (source_list[i]->fits(s->path, is_dir, head)) {
            s->ops = source_list[i];
            return s->ops->open(s);
        }
    return no_format(s->path, is_dir);
}

int source_open(const char *what, struct source **out)
{
    struct source *s = calloc(1, sizeof *s);
    if (!s)
        FATAL("out of memory");
    s->arena = arena_create();
    int rc = open_source(s, what);
    if (rc != ERR_OK)
        source_close(&s);
    *out = s;
    return rc;
}

int source_open_shared(struct comm *c, const char *what, struct source **out)
{
    *out = NULL;
    TRY_ALL(c, c->rank == 0 ? source_open(what, out) : ERR_OK);
    char *path = c->rank == 0 ? strdup((*out)->path) : NULL;
    size_t n_bytes = path ? strlen(path) + 1 : 0;
    if (c->rank == 0 && !path)
        FATAL("out of memory");
    comm_share_bytes(c, &path, &n_bytes);
    int rc = comm_agree(c, c->rank > 0 ? source_open(path, out) : ERR_OK);
    free(path);
    if (rc != ERR_OK)
        source_close(out);
    return rc;
}

void source_close(struct source **s)
{
    if (!*s)
        return;
    if ((*s)->ops)
        (*s)->ops->close(*s);
    arena_destroy(&(*s)->arena);
    free(*s);
    *s = NULL;
}
