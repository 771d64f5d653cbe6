/* An open checkpoint: checked when opened, but for the values, which are checked when read. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ckpt {
    struct arena *arena; /* owned */
    const char *dir, *path;
    int fd; /* owned; the file stays readable even if keep deletes the folder */
    struct manifest m;
    const struct ckpt_array **sorted; /* by group and name */
};

static int check_file(const struct ckpt *k)
{
    struct stat st;
    if (fstat(k->fd, &st) != 0 || !S_ISREG(st.st_mode))
        FAIL(ERR_DATA, "%s is not a regular file", k->path);
    if (st.st_size != k->m.n_bytes)
        FAIL(ERR_DATA, "%s has %lld bytes, its manifest says %lld: it is damaged", k->path,
             (long long)st.st_size, (long long)k->m.n_bytes);
    for (int64_t i = 0; i < k->m.n_gaps; i++) {
        const struct ckpt_gap *g = &k->m.gaps[i];
        uint64_t hash = 0;
        TRY(gap_hash(k->fd, k->path, g, &hash));
        if (hash != g->hash)
            FAIL(ERR_DATA, "%s is damaged in bytes [%lld, %lld): their checksum is wrong", k->path,
                 (long long)g->offset, (long long)(g->offset + g->n_bytes));
    }
    return ERR_OK;
}

static int open_all(struct ckpt *k, const char *dir)
{
    k->dir = arena_strdup(k->arena, dir);
    k->path = arena_printf(k->arena, "%s/%s", dir, CKPT_FILE);
    const char *path = arena_printf(k->arena, "%s/%s", dir, CKPT_MANIFEST);
    TRY(manifest_read(path, k->arena, &k->m));
    if (arrays_sort(k->m.arrays, k->m.n_arrays, k->arena, ERR_DATA, &k->sorted) != ERR_OK) {
        err_prefix("%s", path);
        return ERR_DATA;
    }
    k->fd = open(k->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (k->fd < 0)
        FAIL(ERR_DATA, "cannot open %s: %s", k->path, strerror(errno));
    return check_file(k);
}

int ckpt_open(const char *dir, struct ckpt **out)
{
    struct ckpt *k = calloc(1, sizeof *k);
    if (!k)
        FATAL("out of memory");
    k->arena = arena_create();
    k->fd = -1;
    int rc = open_all(k, dir);
    if (rc != ERR_OK)
        ckpt_close(&k);
    *out = k;
    return rc;
}

void ckpt_close(struct ckpt **k)
{
    if (!*k)
        return;
    if ((*k)->fd >= 0)
        close((*k)->fd);
    arena_destroy(&(*k)->arena);
    free(*k);
    *k = NULL;
}

const char *ckpt_dir(const struct ckpt *k)
{
    return k->dir;
}

int64_t ckpt_step(const struct ckpt *k)
{
    return k->m.step;
}

const struct json *ckpt_meta(const struct ckpt *k)
{
    return k->m.meta;
}

int ckpt_n_arrays(const struct ckpt *k)
{
    return k->m.n_arrays;
}

const struct ckpt_array *ckpt_array_at(const struct ckpt *k, int i)
{
    return i >= 0 && i < k->m.n_arrays ? &k->m.arrays[i] : NULL;
}

int ckpt_array_find(const struct ckpt *k, const char *group, const char *name)
{
    int low = 0, high = k->m.n_arrays;
    while (low < high) {
        int mid = low + (high - low) / 2;
        const struct ckpt_array *x = k->sorted[mid];
        int d = strcmp(group, x->group);
        if (d == 0)
            d = strcmp(name, x->name);
        if (d == 0)
            return (int)(x - k->m.arrays);
        if (d < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return -1;
}

static int missing(const struct ckpt *k, const char *group, const char *name)
{
    const char **words = arena_alloc(k->arena, ((size_t)k->m.n_arrays + 1) * sizeof *words);
    int n = 0;
    for (int i = 0; i < k->m.n_arrays; i++)
        if (strcmp(k->m.arrays[i].group, group) == 0)
            words[n++] = k->m.arrays[i].name;
    if (n == 0)
        FAIL(ERR_DATA, "checkpoint %s has no group %s", k->dir, group);
    const char *near = text_nearest(name, words);
    FAIL(ERR_DATA, "checkpoint %s has no %s/%s%s%s%s", k->dir, group, name,
         near ? " (nearest: " : "", near ? near : "", near ? ")" : "");
}

static int match_one(const struct ckpt *k, const struct ckpt_array *x, const struct ckpt_array *e)
{
    char here[128], there[128];
    if (!shape_equal(&x->shape, &e->shape))
        FAIL(ERR_DATA, "checkpoint %s: %s/%s has shape %s, the model wants %s", k->dir, x->group,
             x->name, shape_print(&x->shape, here, sizeof here),
             shape_print(&e->shape, there, sizeof there));
    if (x->dtype != e->dtype)
        FAIL(ERR_DATA, "checkpoint %s: %s/%s holds %s, the model wants %s", k->dir, x->group,
             x->name, dtype_name(x->dtype), dtype_name(e->dtype));
    if (e->layout && !x->layout)
        FAIL(ERR_DATA, "checkpoint %s: %s/%s does not say its layout, the model wants %s", k->dir,
             x->group, x->name, e->layout);
    if (e->layout && strcmp(x->layout, e->layout) != 0)
        FAIL(ERR_DATA, "checkpoint %s: %s/%s has layout %s, the model wants %s", k->dir, x->group,
             x->name, x->layout, e->layout);
    return ERR_OK;
}

/* Only once every expected array is there: then the first that is not expected is one too many. */
static int one_too_many(const struct ckpt *k, const char *group, const struct ckpt_array *expected,
                        int n)
{
    for (int i = 0; i < k->m.n_arrays; i++) {
        const struct ckpt_array *x = &k->m.arrays[i];
        bool wanted = strcmp(x->group, group) != 0;
        for (int e = 0; e < n && !wanted; e++)
            wanted = strcmp(expected[e].name, x->name) == 0;
        if (!wanted)
            FAIL(ERR_DATA, "checkpoint %s has %s/%s, which the model does not", k->dir, group,
                 x->name);
    }
    return ERR_OK;
}

int ckpt_match(const struct ckpt *k, const char *group, const struct ckpt_array *expected, int n)
{
    int n_there = 0;
    for (int i = 0; i < n; i++) {
        int at = ckpt_array_find(k, group, expected[i].name);
        if (at < 0)
            return missing(k, group, expected[i].name);
        TRY(match_one(k, &k->m.arrays[at], &expected[i]));
    }
    for (int i = 0; i < k->m.n_arrays; i++)
        n_there += strcmp(k->m.arrays[i].group, group) == 0;
    return n_there > n ? one_too_many(k, group, expected, n) : ERR_OK;
}

/* The part of one range that lies in [begin, end); values belongs to begin. */
static int read_range(const struct ckpt *k, const struct ckpt_range *r, int64_t begin, int64_t end,
                      char *values, char *bounce)
{
    const struct ckpt_array *x = &k->m.arrays[r->array];
    int64_t elem_bytes = (int64_t)dtype_bytes(x->dtype);
    size_t n_bytes = (size_t)((r->end - r->begin) * elem_bytes);
    bool whole = begin <= r->begin && r->end <= end;
    char *to = whole ? values + (r->begin - begin) * elem_bytes : bounce;
    TRY(file_pread_fd(k->fd, k->path, to, n_bytes, k->m.offset[r->array] + r->begin * elem_bytes));
    if (hash64(to, n_bytes, 0) != r->hash)
        FAIL(ERR_DATA, "%s is damaged: %s/%s, elements [%lld, %lld): their checksum is wrong",
             k->path, x->group, x->name, (long long)r->begin, (long long)r->end);
    if (whole)
        return ERR_OK;
    int64_t low = begin > r->begin ? begin : r->begin, high = end < r->end ? end : r->end;
    memcpy(values + (low - begin) * elem_bytes, bounce + (low - r->begin) * elem_bytes,
           (size_t)((high - low) * elem_bytes));
    return ERR_OK;
}

int ckpt_read(const struct ckpt *k, int i, int64_t begin, int64_t end, void *values)
{
    if (i < 0 || i >= k->m.n_arrays)
        FAIL(ERR_INTERNAL, "array %d of a checkpoint of %d", i, k->m.n_arrays);
    const struct ckpt_array *x = &k->m.arrays[i];
    if (begin < 0 || end < begin || end > shape_elems(&x->shape))
        FAIL(ERR_INTERNAL, "elements [%lld, %lld) of %s/%s, which has %lld", (long long)begin,
             (long long)end, x->group, x->name, (long long)shape_elems(&x->shape));
    if (begin == end)
        return ERR_OK;
    int64_t low = k->m.first_range[i], high = k->m.first_range[i + 1];
    while (low < high) { /* the first range that ends behind begin */
        int64_t mid = low + (high - low) / 2;
        if (k->m.ranges[mid].end > begin)
            high = mid;
        else
            low = mid + 1;
    }
    char *bounce = malloc(CKPT_CUT_BYTES);
    if (!bounce)
        FAIL(ERR_RESOURCE, "no memory to read %s", k->path);
    int rc = ERR_OK;
    for (int64_t r = low; r < k->m.first_range[i + 1] && k->m.ranges[r].begin < end; r++) {
        rc = read_range(k, &k->m.ranges[r], begin, end, values, bounce);
        if (rc != ERR_OK)
            break;
    }
    free(bounce);
    return rc;
}
