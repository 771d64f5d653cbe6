/* Losses over rows, with their gradients, and right answers. */
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"

enum { EXP_CHUNK = 1024 };

/* Sum of e^(x - top) over a row, in fp64 over chunks. */
static double exp_row(const elem *x, int64_t n, float top)
{
    double sum = 0.0;
    for (int64_t i0 = 0; i0 < n; i0 += EXP_CHUNK) {
        float chunk[EXP_CHUNK];
        int64_t m = min_i64(EXP_CHUNK, n - i0);
#pragma omp simd
        for (int64_t i = 0; i < m; i++)
            chunk[i] = exp_f32(get(x[i0 + i]) - top);
        sum += row_sum(chunk, m);
    }
    return sum;
}

static float cross_entropy_row(elem *dx, const elem *x, int32_t target, int64_t V, float scale)
{
    if (target < 0) {
        if (dx)
            memset(dx, 0, (size_t)V * sizeof *dx);
        return 0.0f;
    }
    REQUIRE(target < V);
    float top = elem_max(x, V), at = get(x[target]); /* dx may be x */
    double sum = exp_row(x, V, top);
    if (dx) {
        /* e^ again: its terms would be rounded twice in dx, and are cheaper made than fetched */
        float f = (float)(scale / sum);
#pragma omp simd
        for (int64_t i = 0; i < V; i++)
            dx[i] = put(exp_f32(get(x[i]) - top) * f);
        dx[target] = put(exp_f32(at - top) * f - scale);
    }
    return (float)(log(sum) - ((double)at - top));
}

void FN(cross_entropy)(struct stream *s, float *loss, void *dlogits, const void *logits,
                       const int32_t *targets, int64_t rows, int64_t V, int64_t ld, float scale)
{
    elem *dx = dlogits;
    const elem *x = logits;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *V))
    for (int64_t r = 0; r < rows; r++)
        loss[r] = cross_entropy_row(dx ? dx + r * ld : NULL, x + r * ld, targets[r], V, scale);
}

void FN(mse)(struct stream *s, float *loss, void *dy, const void *y, const float *values,
             int64_t rows, int64_t N, float scale)
{
    elem *to = dy;
    const elem *from = y;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *N))
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t i = r * N; i < (r + 1) * N; i++) {
            float d = get(from[i]) - values[i];
            sum += (double)d * d;
            if (to)
                to[i] = put(2.0f * scale * d);
        }
        loss[r] = (float)sum;
    }
}

void FN(count_correct)(struct stream *s, int64_t *n, const void *logits, const int32_t *targets,
                       int64_t rows, int64_t V)
{
    const elem *x = logits;
    int64_t right = 0;
#pragma omp parallel for reduction(+ : right) schedule(static) num_threads(threads_for(s, rows *V))
    for (int64_t r = 0; r < rows; r++) {
        const elem *row = x + r * V;
        int64_t best = 0;
        for (int64_t i = 1; i < V; i++)
            best = get(row[i]) > get(row[best]) ? i : best;
        right += best == targets[r];
    }
    *n += right;
}
