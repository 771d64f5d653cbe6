/* Layer normalisation with the residual sum fused.  Ba et al. 2016, arXiv:1607.06450. */
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"
#include "device/cpu/kernels/vmath.h"

/* Sum of (x - mean)² over a row. */
static float row_deviation(const float *x, int64_t n, float mean)
{
    vf a = vf_set1(0.0f), b = a, mu = vf_set1(mean);
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        vf u = vf_load(x + i) - mu, v = vf_load(x + i + VL) - mu;
        a = vf_fma(u, u, a);
        b = vf_fma(v, v, b);
    }
    float sum = vf_sum(a + b);
    for (; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

static void add_rows(float *y, const float *a, const float *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void scale_row(float *y, const float *x, const float *w, const float *b, int64_t C,
                      float mean, float rstd)
{
    if (b) {
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            y[i] = FMA((x[i] - mean) * rstd, w[i], b[i]);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < C; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
    }
}

void FN(layernorm_forward)(struct stream *s, void *y, void *sum, float *mean, float *rstd,
                           const void *x, const void *residual, const void *w, const void *b,
                           int64_t rows, int64_t C, float eps)
{
    const float *in = x, *res = residual;
    float *to = y, *total = sum;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *C))
    for (int64_t r = 0; r < rows; r++) {
        const float *row = in + r * C;
        if (res) {
            add_rows(total + r * C, row, res + r * C, C);
            row = total + r * C;
        }
        float mu = row_sum(row, C) / (float)C;
        float var = row_deviation(row, C, mu) / (float)C;
        float rs = 1.0f / sqrtf(var + eps);
        scale_row(to + r * C, row, w, b, C, mu, rs);
        mean[r] = mu;
        rstd[r] = rs;
    }
}

/* Sums of dy w and dy w x̂ over a row. */
static void row_moments(const float *dy, const float *x, const float *w, int64_t C, float mean,
                        float rstd, float out[2])
{
    vf a = vf_set1(0.0f), b = a, mu = vf_set1(mean), rs = vf_set1(rstd);
    int64_t i = 0;
    for (; i + VL <= C; i += VL) {
        vf g = vf_load(dy + i) * vf_load(w + i);
        a = a + g;
        b = vf_fma(g, (vf_load(x + i) - mu) * rs, b);
    }
    out[0] = vf_sum(a);
    out[1] = vf_sum(b);
    for (; i < C; i++) {
        out[0] += dy[i] * w[i];
        out[1] += dy[i] * w[i] * ((x[i] - mean) * rstd);
    }
}

static void input_row(float *dx, const float *dy, const float *x, const float *w, int64_t C,
                      float mean, float rstd)
{
    float sums[2];
    row_moments(dy, x, w, C, mean, rstd, sums);
    float a = sums[0] / (float)C, b = sums[1] / (float)C;
#pragma omp simd
    for (int64_t i = 0; i < C; i++) {
        float t = FMA(-((x[i] - mean) * rstd), b, dy[i] * w[i] - a);
        dx[i] = FMA(t, rstd, dx[i]);
    }
}

enum { SUM_COLS = 128, SUM_ROWS = 64 };

struct norm {
    const float *dy, *x, *mean, *rstd;
    int64_t rows, C;
};

/* dw and db of columns c0 … c0 + n - 1, rows in order. */
static void weight_columns(const struct norm *l, float *dw, float *db, int64_t c0, int64_t n)
{
    float total_w[SUM_COLS] = {0}, total_b[SUM_COLS] = {0};
    for (int64_t r0 = 0; r0 < l->rows; r0 += SUM_ROWS) {
        float w[SUM_COLS] = {0}, b[SUM_COLS] = {0};
        int64_t r1 = min_i64(r0 + SUM_ROWS, l->rows);
        for (int64_t r = r0; r < r1; r++) {
            const float *dy = l->dy + r * l->C + c0, *x = l->x + r * l->C + c0;
            float mu = l->mean[r], rs = l->rstd[r];
            for (int64_t j = 0; j < n; j++) {
                w[j] = FMA(dy[j], (x[j] - mu) * rs, w[j]);
                b[j] += dy[j];
            }
        }
        for (int64_t j = 0; j < n; j++) {
            total_w[j] += w[j];
            total_b[j] += b[j];
        }
    }
    for (int64_t j = 0; dw && j < n; j++)
        dw[c0 + j] += total_w[j];
    for (int64_t j = 0; db && j < n; j++)
        db[c0 + j] += total_b[j];
}

void FN(layernorm_backward)(struct stream *s, void *dx, float *dw, float *db, const void *dy,
                            const void *x, const void *w, const float *mean, const float *rstd,
                            int64_t rows, int64_t C)
{
    struct norm l = {dy, x, mean, rstd, rows, C};
    const float *weight = w;
    if (dw || db) {
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *C))
        for (int64_t c0 = 0; c0 < C; c0 += SUM_COLS)
            weight_columns(&l, dw, db, c0, min_i64(SUM_COLS, C - c0));
    }
    float *to = dx;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *C))
    for (int64_t r = 0; r < rows; r++)
        input_row(to + r * C, l.dy + r * C, l.x + r * C, weight, C, mean[r], rstd[r]);
}
