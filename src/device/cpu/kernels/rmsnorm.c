/* Root mean square normalisation with the residual sum fused.  Zhang & Sennrich 2019,
 * arXiv:1910.07467. */
#include "device/cpu/kernels/norm.h"

static float row_squares(const elem *x, int64_t n)
{
    vf a = vf_set1(0.0f), b = a;
    int64_t i = 0;
    for (; i + VL2 <= n; i += VL2) {
        vf u = elem_load(x + i), v = elem_load(x + i + VL);
        a = vf_fma(u, u, a);
        b = vf_fma(v, v, b);
    }
    float sum = vf_sum(a + b);
    for (; i < n; i++)
        sum += get(x[i]) * get(x[i]);
    return sum;
}

void FN(rmsnorm_forward)(struct stream *s, void *y, void *sum, float *rstd, const void *x,
                         const void *residual, const void *w, int64_t rows, int64_t C, float eps)
{
    const elem *in = x, *res = residual, *weight = w;
    elem *to = y, *total = sum;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *C))
    for (int64_t r = 0; r < rows; r++) {
        const elem *row = in + r * C;
        elem *out = to + r * C;
        if (res) {
            norm_add(total + r * C, row, res + r * C, C);
            row = total + r * C;
        }
        float rs = 1.0f / sqrtf(row_squares(row, C) / (float)C + eps);
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            out[i] = put(get(row[i]) * rs * get(weight[i]));
        rstd[r] = rs;
    }
}

void FN(rmsnorm_backward)(struct stream *s, void *dx, float *dw, const void *dy, const void *x,
                          const void *w, const float *rstd, int64_t rows, int64_t C)
{
    struct norm l = {dy, x, w, NULL, rstd, rows, C};
    norm_weights(s, &l, dw, NULL);
    if (!dx)
        return;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *C))
    for (int64_t r = 0; r < rows; r++) {
        float sums[2];
        norm_moments(&l, r, sums);
        norm_input_row(&l, dx, r, 0.0f, sums[1] / (float)C);
    }
}
