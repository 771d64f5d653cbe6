/* The bytes of files between the arrays: HDF5's own, and what alignment leaves.  Together with the
 * arrays they tile the files, so no byte is without a checksum. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include "base/hash.h"
#include <stdlib.h>

static int by_begin(const void *a, const void *b)
{
    const struct file_span *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int64_t n_cuts(int64_t n_bytes)
{
    return n_bytes / CKPT_CUT_BYTES + (n_bytes % CKPT_CUT_BYTES != 0);
}

/* In the order of the files, each inside its own and behind the one before. */
static int spans_sort(struct file_span *s, int64_t n, const struct ckpt_file *files, int code)
{
    for (int64_t i = 0; i < n; i++)
        if (s[i].begin < 0 || s[i].end < s[i].begin || s[i].end > files[s[i].file].n_bytes)
            FAIL(code, "%s/%s: %lld bytes at %lld leave %s, which has %lld", s[i].of->group,
                 s[i].of->name, (long long)(s[i].end - s[i].begin), (long long)s[i].begin,
                 files[s[i].file].name, (long long)files[s[i].file].n_bytes);
    qsort(s, (size_t)n, sizeof *s, by_begin);
    for (int64_t i = 1; i < n; i++)
        if (s[i].file == s[i - 1].file && s[i].begin < s[i - 1].end)
            FAIL(code, "%s/%s and %s/%s overlap in %s", s[i - 1].of->group, s[i - 1].of->name,
                 s[i].of->group, s[i].of->name, files[s[i].file].name);
    return ERR_OK;
}

/* Walk the gaps; out NULL: only count. */
static int64_t walk(const struct file_span *s, int64_t n_spans, const struct ckpt_file *files,
                    int n_files, struct ckpt_gap *out)
{
    int64_t n = 0, i = 0;
    for (int f = 0; f < n_files; f++) {
        for (int64_t at = 0; at < files[f].n_bytes;) {
            bool is_span = i < n_spans && s[i].file == f;
            int64_t end = is_span ? s[i].begin : files[f].n_bytes;
            for (; out && at < end; at += out++->n_bytes) {
                int64_t left = end - at;
                *out = (struct ckpt_gap){f, at, left < CKPT_CUT_BYTES ? left : CKPT_CUT_BYTES, 0};
            }
            n += out || at >= end ? 0 : n_cuts(end - at);
            at = is_span ? s[i++].end : files[f].n_bytes;
        }
    }
    return n;
}

int gaps_find(struct file_span *spans, int64_t n_spans, const struct ckpt_file *files, int n_files,
              struct arena *a, int code, int64_t want, struct ckpt_gap **gaps, int64_t *n_gaps)
{
    TRY(spans_sort(spans, n_spans, files, code));
    int64_t n = walk(spans, n_spans, files, n_files, NULL);
    /* a manifest may claim any size: what it lists itself bounds what is worth an allocation */
    if (want >= 0 && n != want)
        FAIL(code, "%lld pieces of the files belong to no array, %lld are listed", (long long)n,
             (long long)want);
    *gaps = arena_alloc(a, ((size_t)n + 1) * sizeof **gaps);
    *n_gaps = n;
    walk(spans, n_spans, files, n_files, *gaps);
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

/* A part of a file and its checksum. */
struct part {
    int64_t file;
    struct {
        int64_t offset, n_bytes;
        uint64_t hash;
    } of;
};

static int by_offset(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->of.offset > y->of.offset) - (x->of.offset < y->of.offset);
}

void files_hash(const struct manifest *m, struct arena *a, uint64_t *hash)
{
    int64_t n_ranges = m->first_range[m->n_arrays], n = 0;
    struct part *p = arena_alloc(a, (size_t)(n_ranges + m->n_gaps + 1) * sizeof *p);
    for (int64_t i = 0; i < n_ranges; i++) {
        const struct ckpt_range *r = &m->ranges[i];
        int64_t elem_bytes = (int64_t)dtype_bytes(m->arrays[r->array].dtype);
        p[n++] = (struct part){r->file, {r->offset, (r->end - r->begin) * elem_bytes, r->hash}};
    }
    for (int64_t i = 0; i < m->n_gaps; i++) {
        const struct ckpt_gap *g = &m->gaps[i];
        p[n++] = (struct part){g->file, {g->offset, g->n_bytes, g->hash}};
    }
    qsort(p, (size_t)n, sizeof *p, by_offset);
    for (int f = 0; f < m->n_files; f++)
        hash[f] = 0;
    for (int64_t i = 0; i < n; i++)
        hash[p[i].file] = hash64(&p[i].of, sizeof p[i].of, hash[p[i].file]);
}
