/* A checkpoint as a source: its reader checks every range that is read. */
#include "ckpt/ckpt_impl.h"
#include "ckpt/source.h"

#include <stdlib.h>
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

/* The range that was read last.  A checksum is a whole range's, and who reads on from where he
 * stopped cuts elsewhere: without it most of them would be read twice. */
struct last_range {
    const struct ckpt_range *range; /* NULL: none */
    char bytes[CKPT_CUT_BYTES];
};

static int ckpt_source_open(struct source *s)
{
    const char *dir = NULL;
    struct stat st;
    if (stat(s->path, &st) == 0 && S_ISREG(st.st_mode))
        split(s->path, s->arena, &dir);
    struct comm *self = comm_self();
    int rc = dir ? ckpt_open(dir, &s->ckpt) : ckpt_open_found(self, s->path, &s->ckpt);
    comm_close(&self);
    TRY(rc);
    if (!s->ckpt)
        FAIL(ERR_DATA, "%s holds no complete checkpoint", s->path);
    s->impl = calloc(1, sizeof(struct last_range));
    if (!s->impl)
        FAIL(ERR_RESOURCE, "no memory to read %s", s->path);
    s->path = ckpt_dir(s->ckpt);
    s->meta = ckpt_meta(s->ckpt);
    s->arrays = ckpt_array_at(s->ckpt, 0);
    s->n_arrays = ckpt_n_arrays(s->ckpt);
    return ERR_OK;
}

static const struct ckpt_range *range_at(const struct manifest *m, int i, int64_t elem)
{
    int64_t low = m->first_range[i], high = m->first_range[i + 1];
    while (low + 1 < high) { /* the last one that does not begin behind it */
        int64_t mid = low + (high - low) / 2;
        if (m->ranges[mid].begin <= elem)
            low = mid;
        else
            high = mid;
    }
    return &m->ranges[low];
}

static int ckpt_source_read(const struct source *s, int i, int64_t begin, int64_t end, void *values)
{
    struct last_range *last = s->impl;
    size_t elem_bytes = dtype_bytes(s->arrays[i].dtype);
    char *to = values;
    for (int64_t at = begin; at < end;) {
        const struct ckpt_range *r = range_at(&s->ckpt->m, i, at);
        int64_t stop = r->end < end ? r->end : end;
        size_t n_bytes = (size_t)(stop - at) * elem_bytes;
        if (at == r->begin && stop == r->end) {
            TRY(ckpt_read(s->ckpt, i, at, stop, to));
        } else {
            if (last->range != r) {
                last->range = NULL;
                TRY(ckpt_read(s->ckpt, i, r->begin, r->end, last->bytes));
                last->range = r;
            }
            memcpy(to, last->bytes + (size_t)(at - r->begin) * elem_bytes, n_bytes);
        }
        to += n_bytes;
        at = stop;
    }
    return ERR_OK;
}

static void ckpt_source_close(struct source *s)
{
    free(s->impl);
    ckpt_close(&s->ckpt);
}

const struct source_ops checkpoint_source = {
    .name = "checkpoint",
    .fits = ckpt_fits,
    .open = ckpt_source_open,
    .read = ckpt_source_read,
    .close = ckpt_source_close,
};
