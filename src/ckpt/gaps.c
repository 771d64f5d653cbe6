/* The bytes of full.h5 between the arrays: HDF5's own, and what alignment leaves.  Together with
 * the arrays they tile the file, so no byte is without a checksum. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include "base/hash.h"
#include <stdlib.h>

struct span {
    int64_t begin, end;
    int array;
};

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int64_t n_cuts(int64_t n_bytes)
{
    return n_bytes / CKPT_CUT_BYTES + (n_bytes % CKPT_CUT_BYTES != 0);
}

/* The arrays in the order of the file, and behind them an empty one at its end. */
static int spans_sort(const struct manifest *m, struct arena *a, int code, struct span **out)
{
    size_t n = (size_t)m->n_arrays;
    struct span *s = arena_alloc(a, (n + 1) * sizeof *s);
    for (int i = 0; i < m->n_arrays; i++) {
        const struct ckpt_array *x = &m->arrays[i];
        int64_t n_bytes = shape_elems(&x->shape) * (int64_t)dtype_bytes(x->dtype);
        if (m->offset[i] < 0 || n_bytes > m->n_bytes || m->offset[i] > m->n_bytes - n_bytes)
            FAIL(code, "%s/%s: %lld bytes at %lld leave %s, which has %lld", x->group, x->name,
                 (long long)n_bytes, (long long)m->offset[i], CKPT_FILE, (long long)m->n_bytes);
        s[i] = (struct span){m->offset[i], m->offset[i] + n_bytes, i};
    }
    qsort(s, n, sizeof *s, by_begin);
    s[n] = (struct span){m->n_bytes, m->n_bytes, -1};
    for (size_t i = 1; i < n; i++)
        if (s[i].begin < s[i - 1].end)
            FAIL(code, "%s/%s and %s/%s overlap in %s", m->arrays[s[i - 1].array].group,
                 m->arrays[s[i - 1].array].name, m->arrays[s[i].array].group,
                 m->arrays[s[i].array].name, CKPT_FILE);
    *out = s;
    return ERR_OK;
}

int gaps_find(const struct manifest *m, struct arena *a, int code, struct ckpt_gap **gaps,
              int64_t *n_gaps)
{
    struct span *s = NULL;
    TRY(spans_sort(m, a, code, &s));
    REQUIRE(s);
    int64_t n = 0, at = 0;
    for (int i = 0; i <= m->n_arrays; at = s[i++].end)
        n += n_cuts(s[i].begin - at);
    /* a manifest may claim any size: what it lists itself bounds what is worth an allocation */
    if (code == ERR_DATA && n != m->n_gaps)
        FAIL(code, "%lld pieces of %s belong to no array, %lld are listed", (long long)n, CKPT_FILE,
             (long long)m->n_gaps);
    struct ckpt_gap *g = arena_alloc(a, ((size_t)n + 1) * sizeof *g);
    *gaps = g;
    *n_gaps = n;
    at = 0;
    for (int i = 0; i <= m->n_arrays; at = s[i++].end)
        for (; at < s[i].begin; at += g++->n_bytes) {
            int64_t left = s[i].begin - at;
            *g = (struct ckpt_gap){at, left < CKPT_CUT_BYTES ? left : CKPT_CUT_BYTES, 0};
        }
    return ERR_OK;
}

int gap_hash(int fd, const char *path, const struct ckpt_gap *g, uint64_t *hash)
{
    char *bytes = malloc((size_t)g->n_bytes);
    if (!bytes)
        FAIL(ERR_RESOURCE, "no memory for %lld bytes of %s", (long long)g->n_bytes, path);
    int rc = file_pread_fd(fd, path, bytes, (size_t)g->n_bytes, g->offset);
    if (rc == ERR_OK)
        *hash = hash64(bytes, (size_t)g->n_bytes, 0);
    free(bytes);
    return rc;
}
