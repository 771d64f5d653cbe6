/* Layer normalisation with the residual sum fused.  Ba et al. 2016, arXiv:1607.06450. */
#include "device/cpu/kernels/norm.h"

/* Sum of (x - mean)² over a row. */
static float row_deviation(const elem *x, int64_t n, float mean)
{
    vf a = vf_set1(0.0f), b = a, mu = vf_set1(mean);
    int64_t i = 0;
    for (; i + VL2 <= n; i += VL2) {
        vf u = elem_load(x + i) - mu, v = elem_load(x + i + VL) - mu;
        a = vf_fma(u, u, a);
        b = vf_fma(v, v, b);
    }
    float sum = vf_sum(a + b);
    for (; i < n; i++)
        sum += (get(x[i]) - mean) * (get(x[i]) - mean);
    return sum;
}

static void scale_row(elem *y, const elem *x, const elem *w, const elem *b, int64_t C, float mean,
                      float rstd)
{
    if (b) {
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            y[i] = put(FMA((get(x[i]) - mean) * rstd, get(w[i]), get(b[i])));
    } else {
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            y[i] = put((get(x[i]) - mean) * rstd * get(w[i]));
    }
}

void FN(layernorm_forward)(struct stream *s, void *y, void *sum, float *mean, float *rstd,
                           const void *x, const void *residual, const void *w, const void *b,
                           int64_t rows, int64_t C, float eps)
{
    const elem *in = x, *res = residual;
    elem *to = y, *total = sum;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *C))
    for (int64_t r = 0; r < rows; r++) {
        const elem *row = in + r * C;
        if (res) {
            norm_add(total + r * C, row, res + r * C, C);
            row = total + r * C;
        }
        float mu = elem_sum(row, C) / (float)C;
        float var = row_deviation(row, C, mu) / (float)C;
        float rs = 1.0f / sqrtf(var + eps);
        scale_row(to + r * C, row, w, b, C, mu, rs);
        mean[r] = mu;
        rstd[r] = rs;
    }
}

void FN(layernorm_backward)(struct stream *s, void *dx, float *dw, float *db, const void *dy,
                            const void *x, const void *w, const float *mean, const float *rstd,
                            int64_t rows, int64_t C)
{
    struct norm l = {dy, x, w, mean, rstd, rows, C};
    norm_weights(s, &l, dw, db);
    if (!dx)
        return;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *C))
    for (int64_t r = 0; r < rows; r++) {
        float sums[2];
        norm_moments(&l, r, sums);
        norm_input_row(&l, dx, r, sums[0] / (float)C, sums[1] / (float)C);
    }
}
