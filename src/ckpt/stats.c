/* Sums in doubles over blocks of fixed size, in order: the same figures every time. */
#include "ckpt/stats.h"

#include "tensor/convert.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_ELEMS = 1 << 17, BLOCK_VALUES = 1024 };

static void add_block(struct tensor_stats *st, const double *v, int64_t n, double *sum,
                      double *squares)
{
    double s = 0, q = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(v[i])) {
            st->n_nan++;
            continue;
        }
        if (!(v[i] >= st->min))
            st->min = v[i];
        if (!(v[i] <= st->max))
            st->max = v[i];
        if (isinf(v[i])) {
            st->n_inf++;
            continue;
        }
        s += v[i];
        q += v[i] * v[i];
    }
    *sum += s;
    *squares += q;
}

int stats_read(const struct weights *w, int i, struct tensor_stats *st)
{
    const struct ckpt_array *x = &w->rows[i].x;
    int64_t n = shape_elems(&x->shape);
    double block[BLOCK_VALUES], sum = 0, squares = 0;
    *st = (struct tensor_stats){.n_elem = n, .min = NAN, .max = NAN};
    char *piece = malloc(PIECE_ELEMS * sizeof(double));
    if (!piece)
        FAIL(ERR_RESOURCE, "no memory to read %s", w->source->path);
    int rc = ERR_OK;
    for (int64_t at = 0; at < n && rc == ERR_OK; at += PIECE_ELEMS) {
        int64_t n_here = n - at < PIECE_ELEMS ? n - at : PIECE_ELEMS;
        rc = weights_read(w, i, at, at + n_here, piece);
        for (int64_t b = 0; b < n_here && rc == ERR_OK; b += BLOCK_VALUES) {
            int64_t m = n_here - b < BLOCK_VALUES ? n_here - b : BLOCK_VALUES;
            dtype_to_f64(block, x->dtype, piece + (size_t)b * dtype_bytes(x->dtype), m);
            add_block(st, block, m, &sum, &squares);
        }
    }
    free(piece);
    int64_t n_finite = n - st->n_nan - st->n_inf;
    st->mean = n_finite > 0 ? sum / (double)n_finite : NAN;
    st->norm = sqrt(squares);
    return rc;
}

static void compare_block(struct tensor_diff *d, const double *a, const double *b, int64_t n,
                          int64_t at)
{
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i])))
            continue;
        double abs = fabs(a[i] - b[i]), larger = fmax(fabs(a[i]), fabs(b[i]));
        if (!isfinite(abs))
            abs = INFINITY;
        double rel = isfinite(abs) ? abs / larger : INFINITY;
        if (d->n_differ++ == 0)
            d->first = at + i;
        d->max_abs = fmax(d->max_abs, abs);
        d->max_rel = fmax(d->max_rel, rel);
    }
}

/* Both pieces begin at element at. */
static void compare_piece(struct tensor_diff *d, enum dtype ta, const char *pa, enum dtype tb,
                          const char *pb, int64_t n, int64_t at)
{
    double va[BLOCK_VALUES], vb[BLOCK_VALUES];
    if (ta == tb && memcmp(pa, pb, (size_t)n * dtype_bytes(ta)) == 0)
        return;
    d->bitwise = false;
    for (int64_t i = 0; i < n; i += BLOCK_VALUES) {
        int64_t m = n - i < BLOCK_VALUES ? n - i : BLOCK_VALUES;
        dtype_to_f64(va, ta, pa + (size_t)i * dtype_bytes(ta), m);
        dtype_to_f64(vb, tb, pb + (size_t)i * dtype_bytes(tb), m);
        compare_block(d, va, vb, m, at + i);
    }
}

int stats_compare(const struct weights *a, int i, const struct weights *b, int k,
                  struct tensor_diff *out)
{
    const struct ckpt_array *x = &a->rows[i].x, *y = &b->rows[k].x;
    int64_t n = shape_elems(&x->shape);
    REQUIRE(shape_equal(&x->shape, &y->shape));
    *out = (struct tensor_diff){.bitwise = x->dtype == y->dtype, .first = -1};
    char *pa = malloc(2 * PIECE_ELEMS * sizeof(double));
    if (!pa)
        FAIL(ERR_RESOURCE, "no memory to compare %s with %s", a->source->path, b->source->path);
    char *pb = pa + PIECE_ELEMS * sizeof(double);
    int rc = ERR_OK;
    for (int64_t at = 0; at < n && rc == ERR_OK; at += PIECE_ELEMS) {
        int64_t end = n - at < PIECE_ELEMS ? n : at + PIECE_ELEMS;
        rc = weights_read(a, i, at, end, pa);
        if (rc == ERR_OK)
            rc = weights_read(b, k, at, end, pb);
        if (rc == ERR_OK)
            compare_piece(out, x->dtype, pa, y->dtype, pb, end - at, at);
    }
    free(pa);
    return rc;
}
