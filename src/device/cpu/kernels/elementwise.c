/* Flat ranges: sums, dropout, counting, filling. */
#include "device/cpu/kernels/drop.h"

#include <string.h>

void FN(add)(struct stream *s, void *y, const void *a, const void *b, int64_t n_elem)
{
    float *to = y;
    const float *l = a, *r = b;
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++)
        to[i] = l[i] + r[i];
}

void FN(accumulate)(struct stream *s, float *y, const float *x, int64_t n_elem)
{
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++)
        y[i] += x[i];
}

enum { DROP_CHUNK = 1024 };

void FN(dropout)(struct stream *s, void *y, const void *x, const struct dropout *d, int64_t B,
                 int64_t n)
{
    float *to = y;
    const float *from = x;
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
            for (int64_t i = 0; i < m; i++)
                to[b * n + i0 + i] = factor[i] == 0.0f ? 0.0f : from[b * n + i0 + i] * factor[i];
        }
}

void FN(count_nonfinite)(struct stream *s, int64_t *n, const void *x, int64_t n_elem)
{
    const char *bytes = x;
    int64_t bad = 0;
#pragma omp parallel for reduction(+ : bad) schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++) {
        uint32_t w;
        memcpy(&w, bytes + 4 * i, sizeof w);
        bad += (w & 0x7F800000u) == 0x7F800000u;
    }
    *n += bad;
}

void FN(sum_f64)(struct stream *s, double *sum, const float *x, int64_t n_elem)
{
    (void)s;
    double total = *sum;
    for (int64_t i = 0; i < n_elem; i++)
        total += x[i];
    *sum = total;
}

typedef double vd8 __attribute__((vector_size(64)));
typedef float vf8 __attribute__((vector_size(32)));

/* Eight sums in fp64, added as a binary tree. */
static double block_squares(const float *g, int64_t n)
{
    vd8 acc = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        vf8 v;
        memcpy(&v, g + i, sizeof v);
        vd8 w = __builtin_convertvector(v, vd8);
        acc += w * w;
    }
    double sum = (acc[0] + acc[4] + (acc[2] + acc[6])) + (acc[1] + acc[5] + (acc[3] + acc[7]));
    for (; i < n; i++)
        sum += (double)g[i] * g[i];
    return sum;
}

void FN(square_sums)(struct stream *s, double *block, const float *g, int64_t n_elem)
{
#pragma omp parallel for schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i += BLOCK_ELEMS)
        block[i / BLOCK_ELEMS] = block_squares(g + i, min_i64(BLOCK_ELEMS, n_elem - i));
}

enum { FILL_CHUNK = 4096 };

static void fill_range(float *p, const struct init_rule *rule, struct rng_key key, int64_t first,
                       int64_t n)
{
    switch (rule->kind) {
    case INIT_CONST:
        for (int64_t i = 0; i < n; i++)
            p[i] = rule->a;
        break;
    case INIT_NORMAL:
        rng_fill_normal(key, first, n, rule->a, rule->b, p);
        break;
    case INIT_UNIFORM:
        rng_fill_uniform(key, first, n, rule->a, rule->b, p);
        break;
    }
}

void FN(fill)(struct stream *s, float *p, const struct init_rule *rule, struct rng_key key,
              int64_t first, int64_t n_elem)
{
#pragma omp parallel for schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i += FILL_CHUNK)
        fill_range(p + i, rule, key, first + i, min_i64(FILL_CHUNK, n_elem - i));
}
