/* A checkpoint as a source: its reader checks every range that is read. */
#include "ckpt/ckpt_impl.h"
#include "ckpt/source.h"

#include <string.h>
#include <sys/stat.h>

/* The last part of a path; *folder is what stands before it. */
static const char *split(const char *path, struct arena *a, const char **folder)
{
    const char *slash = strrchr(path, '/');
    *folder = !slash ? "." : slash == path ? "/" : arena_strndup(a, path, (size_t)(slash - path));
    return slash ? slash + 1 : path;
}

/* Folders whose name says that they are a step, or that hold one; files of a complete one. */
static bool ckpt_fits(const char *path, bool is_dir, const unsigned char head[8])
{
    static const unsigned char hdf5[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    struct arena *a = arena_create();
    const char *folder, *suffix, *dir = NULL, *base = split(path, a, &folder);
    int64_t step;
    bool fits;
    if (is_dir) /* what is not there is explained by ckpt_find() */
        fits = step_parse(base, &step, &suffix) || strcmp(base, "latest") == 0 ||
               ckpt_find(path, a, &dir) != ERR_OK || dir;
    else
        fits = step_complete(folder) &&
               (memcmp(head, hdf5, sizeof hdf5) == 0 || strcmp(base, CKPT_MANIFEST) == 0);
    arena_destroy(&a);
    return fits;
}

static int ckpt_source_open(struct source *s)
{
    const char *dir = NULL;
    struct stat st;
    if (stat(s->path, &st) == 0 && S_ISREG(st.st_mode))
        split(s->path, s->arena, &dir);
    else
        TRY(ckpt_find(s->path, s->arena, &dir));
    if (!dir)
        FAIL(ERR_DATA, "%s holds no complete checkpoint", s->path);
    TRY(ckpt_open(dir, &s->ckpt));
    s->path = ckpt_dir(s->ckpt);
    s->meta = ckpt_meta(s->ckpt);
    s->arrays = ckpt_array_at(s->ckpt, 0);
    s->n_arrays = ckpt_n_arrays(s->ckpt);
    return ERR_OK;
}

static int ckpt_source_read(const struct source *s, int i, int64_t begin, int64_t end, void *values)
{
    return ckpt_read(s->ckpt, i, begin, end, values);
}

static void ckpt_source_close(struct source *s)
{
    ckpt_close(&s->ckpt);
}

const struct source_ops checkpoint_source = {
    .name = "checkpoint",
    .fits = ckpt_fits,
    .open = ckpt_source_open,
    .read = ckpt_source_read,
    .close = ckpt_source_close,
};
