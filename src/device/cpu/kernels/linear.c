/* Linear layers: the product through the device's matmul table, bias and activation over rows. */
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vmath.h"

static void product(struct stream *s, const struct gemm *g, const float *A, const float *B,
                    float *C)
{
    if (g->M > 0 && g->N > 0)
        s->dev->matmul->ops->run(s->dev->matmul->state, g, A, B, C);
}

struct rows {
    const float *from; /* the bare product */
    const float *b;
    float *pre, *y;
    int64_t N;
};

/* The activation is a constant in each copy of this loop. */
static inline __attribute__((always_inline)) void finish_row(const struct rows *r, int64_t m,
                                                             enum act_kind act)
{
    const float *from = r->from + m * r->N, *b = r->b;
    float *y = r->y + m * r->N;
    if (b && r->pre) {
        float *pre = r->pre + m * r->N;
#pragma omp simd
        for (int64_t n = 0; n < r->N; n++) {
            float t = from[n] + b[n];
            pre[n] = t;
            y[n] = act_value(act, t);
        }
    } else if (b) {
#pragma omp simd
        for (int64_t n = 0; n < r->N; n++)
            y[n] = act_value(act, from[n] + b[n]);
    } else {
#pragma omp simd
        for (int64_t n = 0; n < r->N; n++)
            y[n] = act_value(act, from[n]);
    }
}

static void finish_rows(const struct rows *r, int64_t m, enum act_kind act)
{
    switch (act) {
    case ACT_NONE:
        finish_row(r, m, ACT_NONE);
        break;
    case ACT_RELU:
        finish_row(r, m, ACT_RELU);
        break;
    case ACT_GELU:
        finish_row(r, m, ACT_GELU);
        break;
    case ACT_GELU_TANH:
        finish_row(r, m, ACT_GELU_TANH);
        break;
    case ACT_SILU:
        finish_row(r, m, ACT_SILU);
        break;
    case ACT_TANH:
        finish_row(r, m, ACT_TANH);
        break;
    }
}

void FN(linear_forward)(struct stream *s, const struct linear *l, void *y, void *pre, const void *x,
                        const void *w, const void *b)
{
    float *to = pre ? pre : y;
    struct gemm g = {.M = l->M,
                     .N = l->N,
                     .K = l->K,
                     .b_trans = !l->in_out,
                     .lda = l->K,
                     .ldb = l->in_out ? l->N : l->K,
                     .ldc = l->N};
    product(s, &g, x, w, to);
    if (!pre && !b && l->act == ACT_NONE)
        return;
    struct rows r = {.from = to, .b = b, .pre = pre, .y = y, .N = l->N};
#pragma omp parallel for schedule(static) num_threads(threads_for(s, l->M * l->N))
    for (int64_t m = 0; m < l->M; m++)
        finish_rows(&r, m, l->act);
}

static inline __attribute__((always_inline)) void slope_range(float *dy, const float *pre,
                                                              int64_t n, enum act_kind act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dy[i] *= act_slope(act, pre[i]);
}

static void slope_any(float *dy, const float *pre, int64_t n, enum act_kind act)
{
    switch (act) {
    case ACT_NONE:
        break;
    case ACT_RELU:
        slope_range(dy, pre, n, ACT_RELU);
        break;
    case ACT_GELU:
        slope_range(dy, pre, n, ACT_GELU);
        break;
    case ACT_GELU_TANH:
        slope_range(dy, pre, n, ACT_GELU_TANH);
        break;
    case ACT_SILU:
        slope_range(dy, pre, n, ACT_SILU);
        break;
    case ACT_TANH:
        slope_range(dy, pre, n, ACT_TANH);
        break;
    }
}

enum { SUM_COLS = 128, SUM_ROWS = 64 };

/* Columns are cut among threads and each column is added in row order, in blocks of rows whose
 * sums are then added: the same bits for any number of threads. */
static void column_sums(const struct stream *s, float *db, const float *dy, int64_t M, int64_t N)
{
#pragma omp parallel for schedule(static) num_threads(threads_for(s, M *N))
    for (int64_t c0 = 0; c0 < N; c0 += SUM_COLS) {
        int64_t n = min_i64(SUM_COLS, N - c0);
        float total[SUM_COLS] = {0};
        for (int64_t m0 = 0; m0 < M; m0 += SUM_ROWS) {
            float acc[SUM_COLS] = {0};
            int64_t m1 = min_i64(m0 + SUM_ROWS, M);
            for (int64_t m = m0; m < m1; m++)
                for (int64_t j = 0; j < n; j++)
                    acc[j] += dy[m * N + c0 + j];
            for (int64_t j = 0; j < n; j++)
                total[j] += acc[j];
        }
        for (int64_t j = 0; j < n; j++)
            db[c0 + j] += total[j];
    }
}

void FN(linear_backward)(struct stream *s, const struct linear *l, void *dx, float *dw, float *db,
                         void *dy, const void *x, const void *w, const void *pre)
{
    int64_t M = l->M, N = l->N, K = l->K;
    if (l->act != ACT_NONE) {
        float *g = dy;
        const float *at = pre;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, M *N))
        for (int64_t m = 0; m < M; m++)
            slope_any(g + m * N, at + m * N, N, l->act);
    }
    if (db)
        column_sums(s, db, dy, M, N);
    if (dx) {
        struct gemm g = {.M = M,
                         .N = K,
                         .K = N,
                         .b_trans = l->in_out,
                         .lda = N,
                         .ldb = l->in_out ? N : K,
                         .ldc = K};
        product(s, &g, dy, w, dx);
    }
    if (dw && M > 0) {
        struct gemm g = {.M = l->in_out ? K : N,
                         .N = l->in_out ? N : K,
                         .K = M,
                         .a_trans = true,
                         .accumulate = true,
                         .lda = l->in_out ? K : N,
                         .ldb = l->in_out ? N : K,
                         .ldc = l->in_out ? N : K};
        if (l->in_out)
            product(s, &g, x, dy, dw);
        else
            product(s, &g, dy, x, dw);
    }
}
