/* Losses over rows, with their gradients, and right answers. */
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"
#include "device/cpu/kernels/vmath.h"

enum { EXP_CHUNK = 1024 };

/* Sum of e^(x - top) over a row, in fp64 over chunks; the terms stay in out where it is given. */
static double exp_row(float *out, const float *x, int64_t n, float top)
{
    double sum = 0.0;
    for (int64_t i0 = 0; i0 < n; i0 += EXP_CHUNK) {
        float chunk[EXP_CHUNK];
        float *to = out ? out + i0 : chunk;
        int64_t m = min_i64(EXP_CHUNK, n - i0);
#pragma omp simd
        for (int64_t i = 0; i < m; i++)
            to[i] = exp_f32(x[i0 + i] - top);
        sum += row_sum(to, m);
    }
    return sum;
}

static float cross_entropy_row(float *dx, const float *x, int32_t target, int64_t V, float scale)
{
    if (target < 0) {
        if (dx)
            memset(dx, 0, (size_t)V * sizeof *dx);
        return 0.0f;
    }
    REQUIRE(target < V);
    float top = row_max(x, V), at = x[target]; /* dx may be x */
    double sum = exp_row(dx, x, V, top);
    if (dx) {
        float f = (float)(scale / sum);
#pragma omp simd
        for (int64_t i = 0; i < V; i++)
            dx[i] *= f;
        dx[target] -= scale;
    }
    return (float)(log(sum) - ((double)at - top));
}

void FN(cross_entropy)(struct stream *s, float *loss, void *dlogits, const void *logits,
                       const int32_t *targets, int64_t rows, int64_t V, float scale)
{
    float *dx = dlogits;
    const float *x = logits;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *V))
    for (int64_t r = 0; r < rows; r++)
        loss[r] = cross_entropy_row(dx ? dx + r * V : NULL, x + r * V, targets[r], V, scale);
}

void FN(mse)(struct stream *s, float *loss, void *dy, const void *y, const float *values,
             int64_t rows, int64_t N, float scale)
{
    float *to = dy;
    const float *from = y;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *N))
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t i = r * N; i < (r + 1) * N; i++) {
            float d = from[i] - values[i];
            sum += (double)d * d;
            if (to)
                to[i] = 2.0f * scale * d;
        }
        loss[r] = (float)sum;
    }
}

void FN(count_correct)(struct stream *s, int64_t *n, const void *logits, const int32_t *targets,
                       int64_t rows, int64_t V)
{
    const float *x = logits;
    int64_t right = 0;
#pragma omp parallel for reduction(+ : right) schedule(static) num_threads(threads_for(s, rows *V))
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * V;
        int64_t best = 0;
        for (int64_t i = 1; i < V; i++)
            best = row[i] > row[best] ? i : best;
        right += best == targets[r];
    }
    *n += right;
}
