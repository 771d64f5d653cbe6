/* Losses over rows, with their gradients, and right answers. */
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"
#include "tensor/half.h"

enum { EXP_CHUNK = 1024 };

/* Cross-entropy is compiled for every output dtype, so that nothing is asked per element. */
#define FOR_OUTPUT static inline __attribute__((always_inline))

/* f as it is after a cast to the output dtype. */
FOR_OUTPUT float as_output(enum dtype output, float f)
{
    return output == DTYPE_F32 ? f : half_widen(output, half_narrow(output, f));
}

/* Sum of e^(x - top) over a row, in fp64 over chunks. */
FOR_OUTPUT double exp_row(enum dtype output, const elem *x, int64_t n, float top)
{
    double sum = 0.0;
    for (int64_t i0 = 0; i0 < n; i0 += EXP_CHUNK) {
        float chunk[EXP_CHUNK];
        int64_t m = min_i64(EXP_CHUNK, n - i0);
#pragma omp simd
        for (int64_t i = 0; i < m; i++)
            chunk[i] = exp_f32(as_output(output, get(x[i0 + i])) - top);
        sum += row_sum(chunk, m);
    }
    return sum;
}

FOR_OUTPUT float cross_entropy_row(enum dtype output, elem *dx, const elem *x, int32_t target,
                                   int64_t V, float scale)
{
    if (target < 0) {
        if (dx)
            memset(dx, 0, (size_t)V * sizeof *dx);
        return 0.0f;
    }
    REQUIRE(target < V);
    float top = as_output(output, elem_max(x, V)); /* rounding keeps the order */
    float at = as_output(output, get(x[target]));  /* dx may be x */
    double sum = exp_row(output, x, V, top);
    if (dx) {
        /* e^ again: its terms would be rounded twice in dx, and are cheaper made than fetched */
        float f = (float)(scale / sum);
#pragma omp simd
        for (int64_t i = 0; i < V; i++)
            dx[i] = put(as_output(output, exp_f32(as_output(output, get(x[i])) - top) * f));
        dx[target] = put(as_output(output, exp_f32(at - top) * f - scale));
    }
    return (float)(log(sum) - ((double)at - top));
}

static float cross_entropy_as(enum dtype output, elem *dx, const elem *x, int32_t target, int64_t V,
                              float scale)
{
    switch (output) {
    case DTYPE_BF16:
        return cross_entropy_row(DTYPE_BF16, dx, x, target, V, scale);
    case DTYPE_F16:
        return cross_entropy_row(DTYPE_F16, dx, x, target, V, scale);
    default:
        return cross_entropy_row(DTYPE_F32, dx, x, target, V, scale);
    }
}

void FN(cross_entropy)(struct stream *s, float *loss, void *dlogits, const void *logits,
                       const int32_t *targets, int64_t rows, int64_t V, int64_t ld, float scale,
                       enum dtype output)
{
    elem *dx = dlogits;
    const elem *x = logits;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *V))
    for (int64_t r = 0; r < rows; r++)
        loss[r] =
            cross_entropy_as(output, dx ? dx + r * ld : NULL, x + r * ld, targets[r], V, scale);
}

/* Models with few outputs end with these two: they ask per element. */
void FN(mse)(struct stream *s, float *loss, void *dy, const void *y, const float *values,
             int64_t rows, int64_t N, float scale, enum dtype output)
{
    elem *to = dy;
    const elem *from = y;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *N))
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t i = r * N; i < (r + 1) * N; i++) {
            float d = as_output(output, get(from[i])) - values[i];
            sum += (double)d * d;
            if (to)
                to[i] = put(as_output(output, 2.0f * scale * d));
        }
        loss[r] = (float)sum;
    }
}

void FN(count_correct)(struct stream *s, int64_t *n, const void *logits, const int32_t *targets,
                       int64_t rows, int64_t V, enum dtype output)
{
    const elem *x = logits;
    int64_t right = 0;
#pragma omp parallel for reduction(+ : right) schedule(static) num_threads(threads_for(s, rows *V))
    for (int64_t r = 0; r < rows; r++) {
        const elem *row = x + r * V;
        float top = as_output(output, get(row[0]));
        int64_t best = 0;
        for (int64_t i = 1; i < V; i++) {
            float at = as_output(output, get(row[i]));
            best = at > top ? i : best;
            top = at > top ? at : top;
        }
        right += best == targets[r];
    }
    *n += right;
}
