/* Flat ranges of fp32: sums, the table of rotations. */
#include "device/cpu/kernels/once/once.h"
#include "device/cpu/kernels/vec.h"

#include <math.h>
#include <string.h>

void ISA_FN(accumulate)(struct stream *s, float *y, const float *x, int64_t n_elem)
{
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++)
        y[i] += x[i];
}

void ISA_FN(scale)(struct stream *s, float *y, float a, int64_t n_elem)
{
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++)
        y[i] *= a;
}

void ISA_FN(sum_f64)(struct stream *s, double *sum, const float *x, int64_t n_elem)
{
    (void)s;
    double total = *sum;
    for (int64_t i = 0; i < n_elem; i++)
        total += x[i];
    *sum = total;
}

typedef double vd8 __attribute__((vector_size(64)));
typedef float vf8 __attribute__((vector_size(32)));

/* The squares of eight floats.  gcc 12 halves a vector that it could widen at once. */
static inline void add_squares(vd8 *acc, const float *p)
{
#if defined __AVX512F__
    vd8 w = (vd8)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#else
    vf8 v;
    memcpy(&v, p, sizeof v);
    vd8 w = __builtin_convertvector(v, vd8);
#endif
    *acc += w * w;
}

/* 32 sums in fp64, added as a binary tree. */
static double block_squares(const float *g, int64_t n)
{
    vd8 acc[4] = {{0}};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            add_squares(&acc[k], g + i + (ptrdiff_t)8 * k);
    vd8 a = (acc[0] + acc[1]) + (acc[2] + acc[3]);
    double sum = (a[0] + a[4] + (a[2] + a[6])) + (a[1] + a[5] + (a[3] + a[7]));
    for (; i < n; i++)
        sum += (double)g[i] * g[i];
    return sum;
}

static void all_squares(double *block, const float *g, int64_t n_elem)
{
#pragma omp for schedule(static)
    for (int64_t i = 0; i < n_elem; i += BLOCK_ELEMS)
        block[i / BLOCK_ELEMS] = block_squares(g + i, min_i64(BLOCK_ELEMS, n_elem - i));
}

void ISA_FN(square_sums)(struct stream *s, double *block, const float *g, int64_t n_elem)
{
    BY_THREADS(threads_for(s, n_elem), all_squares(block, g, n_elem));
}

/* Su et al. 2021, arXiv:2104.09864.  fp64: the angle of a late position has lost its digits in
 * fp32. */
void ISA_FN(rope_table)(struct stream *s, float *table, int64_t T, int64_t D, double theta)
{
    REQUIRE(D % 2 == 0);
#pragma omp parallel for schedule(static) num_threads(threads_for(s, 16 * T * D))
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < D; i += 2) {
            double angle = (double)t * pow(theta, -(double)i / (double)D);
            table[t * D + i] = (float)cos(angle);
            table[t * D + i + 1] = (float)sin(angle);
        }
}
