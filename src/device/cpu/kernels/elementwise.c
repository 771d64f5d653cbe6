/* Flat ranges of the compute dtype: sums, products, casts, dropout, counting. */
#include "device/cpu/kernels/drop.h"
#include "device/cpu/kernels/elem.h"

#include "base/bits.h"
#include <string.h>

void FN(add)(struct stream *s, void *y, const void *a, const void *b, int64_t n_elem)
{
    elem *to = y;
    const elem *l = a, *r = b;
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++)
        to[i] = put(get(l[i]) + get(r[i]));
}

void FN(multiply)(struct stream *s, void *y, const void *x, int64_t n_elem)
{
    elem *to = y;
    const elem *f = x;
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++)
        to[i] = put(get(to[i]) * get(f[i]));
}

void FN(add_scaled)(struct stream *s, void *y, int64_t ldy, const void *x, float a, int64_t rows,
                    int64_t N)
{
    elem *to = y;
    const elem *from = x;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *N))
    for (int64_t m = 0; m < rows; m++) {
        elem *l = to + m * ldy;
        const elem *r = from + m * N;
#pragma omp simd
        for (int64_t j = 0; j < N; j++)
            l[j] = put(get(l[j]) + a * get(r[j]));
    }
}

void FN(cast)(struct stream *s, void *y, const float *x, int64_t n_elem)
{
    elem *to = y;
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++)
        to[i] = put(x[i]);
}

enum { DROP_CHUNK = 1024 };

void FN(dropout)(struct stream *s, void *y, const void *x, const struct dropout *d, int64_t B,
                 int64_t n)
{
    elem *to = y;
    const elem *from = x;
    if (d->p == 0.0f) {
        if (to != from && B * n > 0)
            memcpy(to, from, (size_t)(B * n) * sizeof *to);
        return;
    }
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_for(s, B *n))
    for (int64_t b = 0; b < B; b++)
        for (int64_t i0 = 0; i0 < n; i0 += DROP_CHUNK) {
            float factor[DROP_CHUNK];
            int64_t m = min_i64(DROP_CHUNK, n - i0);
            drop_factors(d, b, i0, m, factor);
#pragma omp simd
            for (int64_t i = 0; i < m; i++) {
                float v = get(from[b * n + i0 + i]) * factor[i];
                to[b * n + i0 + i] = put(factor[i] == 0.0f ? 0.0f : v);
            }
        }
}

void FN(count_nonfinite)(struct stream *s, int64_t *n, const void *x, int64_t n_elem)
{
    const elem *in = x;
    int64_t bad = 0;
#pragma omp parallel for reduction(+ : bad) schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++) {
        bad += (f32_bits(get(in[i])) & 0x7F800000u) == 0x7F800000u;
    }
    *n += bad;
}
