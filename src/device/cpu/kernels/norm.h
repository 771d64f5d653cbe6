/* Private to kernels/: what layer norm and RMS norm share.  An RMS norm's mean is 0. */
#pragma once
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"

struct norm {
    const elem *dy, *x, *w;
    const float *mean, *rstd; /* mean NULL: all 0 */
    int64_t rows, C;
};

static inline void norm_add(elem *y, const elem *a, const elem *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = put(get(a[i]) + get(b[i]));
}

/* Sums of dy w and dy w x̂ over a row. */
static inline void norm_moments(const struct norm *l, int64_t r, float out[2])
{
    const elem *dy = l->dy + r * l->C, *x = l->x + r * l->C;
    float mean = l->mean ? l->mean[r] : 0.0f, rstd = l->rstd[r];
    vf a = vf_set1(0.0f), b = a, mu = vf_set1(mean), rs = vf_set1(rstd);
    int64_t i = 0;
    for (; i + VL <= l->C; i += VL) {
        vf g = elem_load(dy + i) * elem_load(l->w + i);
        a = a + g;
        b = vf_fma(g, (elem_load(x + i) - mu) * rs, b);
    }
    out[0] = vf_sum(a);
    out[1] = vf_sum(b);
    for (; i < l->C; i++) {
        float g = get(dy[i]) * get(l->w[i]);
        out[0] += g;
        out[1] += g * ((get(x[i]) - mean) * rstd);
    }
}

/* dx of row r adds: (dy w - a - x̂ b) rstd. */
static inline void norm_input_row(const struct norm *l, elem *dx, int64_t r, float a, float b)
{
    const elem *dy = l->dy + r * l->C, *x = l->x + r * l->C, *w = l->w;
    float mean = l->mean ? l->mean[r] : 0.0f, rstd = l->rstd[r];
    elem *to = dx + r * l->C;
#pragma omp simd
    for (int64_t i = 0; i < l->C; i++) {
        float t = FMA(-((get(x[i]) - mean) * rstd), b, get(dy[i]) * get(w[i]) - a);
        to[i] = put(FMA(t, rstd, get(to[i])));
    }
}

enum { NORM_COLS = 128, NORM_ROWS = 64 };

/* dw and db of columns c0 … c0 + n - 1, rows in order. */
static inline void norm_weight_columns(const struct norm *l, float *dw, float *db, int64_t c0,
                                       int64_t n)
{
    float total_w[NORM_COLS] = {0}, total_b[NORM_COLS] = {0};
    for (int64_t r0 = 0; r0 < l->rows; r0 += NORM_ROWS) {
        float w[NORM_COLS] = {0}, b[NORM_COLS] = {0};
        int64_t r1 = min_i64(r0 + NORM_ROWS, l->rows);
        for (int64_t r = r0; r < r1; r++) {
            const elem *dy = l->dy + r * l->C + c0, *x = l->x + r * l->C + c0;
            float mu = l->mean ? l->mean[r] : 0.0f, rs = l->rstd[r];
            for (int64_t j = 0; j < n; j++) {
                w[j] = FMA(get(dy[j]), (get(x[j]) - mu) * rs, w[j]);
                b[j] += get(dy[j]);
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

static inline void norm_weights(const struct stream *s, const struct norm *l, float *dw, float *db)
{
    if (!dw && !db)
        return;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, l->rows * l->C))
    for (int64_t c0 = 0; c0 < l->C; c0 += NORM_COLS)
        norm_weight_columns(l, dw, db, c0, min_i64(NORM_COLS, l->C - c0));
}
