/* Linear layers: the product with its bias through the device's matmul table, the activation over
 * rows. */
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"

/* Elements from a row of y or dy to the next. */
static int64_t row_step(const struct linear *l)
{
    REQUIRE(l->ldy == 0 || l->ldy == l->N || (l->ldy > l->N && l->act == ACT_NONE));
    return l->ldy ? l->ldy : l->N;
}

/* y = x · w (+ b) */
static struct gemm value_gemm(const struct linear *l)
{
    return (struct gemm){.bf16 = ELEM_BF16,
                         .f16 = ELEM_F16,
                         .M = l->M,
                         .N = l->N,
                         .K = l->K,
                         .b_trans = !l->in_out,
                         .lda = l->K,
                         .ldb = l->in_out ? l->N : l->K,
                         .ldc = row_step(l)};
}

/* dx = dy · wᵀ */
static struct gemm input_gemm(const struct linear *l)
{
    return (struct gemm){.bf16 = ELEM_BF16,
                         .f16 = ELEM_F16,
                         .M = l->M,
                         .N = l->K,
                         .K = l->N,
                         .b_trans = l->in_out,
                         .accumulate = l->add_dx,
                         .wide_c = l->wide_dx,
                         .lda = row_step(l),
                         .ldb = l->in_out ? l->N : l->K,
                         .ldc = l->K};
}

/* dw = xᵀ · dy, or dyᵀ · x */
static struct gemm weight_gemm(const struct linear *l)
{
    return (struct gemm){.bf16 = ELEM_BF16,
                         .f16 = ELEM_F16,
                         .M = l->in_out ? l->K : l->N,
                         .N = l->in_out ? l->N : l->K,
                         .K = l->M,
                         .a_trans = true,
                         .accumulate = !l->unset_dw,
                         .wide_c = true,
                         .lda = l->in_out ? l->K : row_step(l),
                         .ldb = l->in_out ? row_step(l) : l->K,
                         .ldc = l->in_out ? l->N : l->K};
}

size_t FN(linear_scratch)(const struct device *dev, const struct linear *l)
{
    const struct gemm all[] = {value_gemm(l), input_gemm(l), weight_gemm(l)};
    size_t most = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n_bytes = cpu_product_room(dev, &all[i]);
        most = n_bytes > most ? n_bytes : most;
    }
    return most;
}

static void product(struct stream *s, const struct gemm *g, const void *A, const void *B, void *C)
{
    if (g->M == 0 || g->N == 0)
        return;
    size_t mark = stack_mark(&s->scratch), n_bytes = cpu_product_room(s->dev, g);
    cpu_product(s->dev, g, A, B, C, n_bytes > 0 ? stack_push(&s->scratch, n_bytes) : NULL);
    stack_release(&s->scratch, mark);
}

/* The activation is a constant in each copy of these loops. */
static inline __attribute__((always_inline)) void value_range(elem *y, const elem *x, int64_t n,
                                                              enum act_kind act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = put(act_at(act, get(x[i])).value);
}

static inline __attribute__((always_inline)) void slope_range(elem *dy, const elem *x, int64_t n,
                                                              enum act_kind act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dy[i] = put(get(dy[i]) * act_at(act, get(x[i])).slope);
}

static inline __attribute__((always_inline)) void both_range(elem *y, elem *slope, const elem *x,
                                                             int64_t n, enum act_kind act)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        struct act_point p = act_at(act, get(x[i]));
        y[i] = put(p.value);
        slope[i] = put(p.slope);
    }
}

#define FOR_ACT(act, range, ...)                                                                   \
    switch (act) {                                                                                 \
    case ACT_NONE:                                                                                 \
        break;                                                                                     \
    case ACT_RELU:                                                                                 \
        range(__VA_ARGS__, ACT_RELU);                                                              \
        break;                                                                                     \
    case ACT_GELU:                                                                                 \
        range(__VA_ARGS__, ACT_GELU);                                                              \
        break;                                                                                     \
    case ACT_GELU_TANH:                                                                            \
        range(__VA_ARGS__, ACT_GELU_TANH);                                                         \
        break;                                                                                     \
    case ACT_SILU:                                                                                 \
        range(__VA_ARGS__, ACT_SILU);                                                              \
        break;                                                                                     \
    case ACT_TANH:                                                                                 \
        range(__VA_ARGS__, ACT_TANH);                                                              \
        break;                                                                                     \
    }

static void value_any(elem *y, const elem *x, int64_t n, enum act_kind act)
{
    FOR_ACT(act, value_range, y, x, n)
}

static void slope_any(elem *dy, const elem *x, int64_t n, enum act_kind act)
{
    FOR_ACT(act, slope_range, dy, x, n)
}

static void both_any(elem *y, elem *slope, const elem *x, int64_t n, enum act_kind act)
{
    FOR_ACT(act, both_range, y, slope, x, n)
}

static void value_rows(elem *y, const elem *x, const struct linear *l)
{
#pragma omp for schedule(static)
    for (int64_t m = 0; m < l->M; m++)
        value_any(y + m * l->N, x + m * l->N, l->N, l->act);
}

static void slope_rows(elem *dy, const elem *x, const struct linear *l)
{
#pragma omp for schedule(static)
    for (int64_t m = 0; m < l->M; m++)
        slope_any(dy + m * l->N, x + m * l->N, l->N, l->act);
}

void FN(linear_forward)(struct stream *s, const struct linear *l, void *y, void *pre, const void *x,
                        const void *w, const void *b)
{
    elem *from = pre ? pre : y, *to = y;
    struct gemm g = value_gemm(l);
    g.bias = b;
    product(s, &g, x, w, from);
    if (l->act == ACT_NONE) {
        for (int64_t m = 0; pre && m < l->M; m++)
            memcpy(to + m * g.ldc, from + m * g.ldc, (size_t)l->N * sizeof *to);
        return;
    }
    BY_THREADS(threads_for(s, l->M * l->N), value_rows(to, from, l));
}

enum { SUM_COLS = 128, SUM_ROWS = 64 };

/* Columns are cut among threads and each column is added in row order, in blocks of rows whose
 * sums are then added: the same bits for any number of threads. */
static void column_sums(float *db, const elem *dy, const struct linear *l)
{
    int64_t M = l->M, N = l->N, step = row_step(l);
#pragma omp for schedule(static)
    for (int64_t c0 = 0; c0 < N; c0 += SUM_COLS) {
        int64_t n = min_i64(SUM_COLS, N - c0);
        float total[SUM_COLS] = {0};
        for (int64_t m0 = 0; m0 < M; m0 += SUM_ROWS) {
            float acc[SUM_COLS] = {0};
            int64_t m1 = min_i64(m0 + SUM_ROWS, M);
            for (int64_t m = m0; m < m1; m++)
                for (int64_t j = 0; j < n; j++)
                    acc[j] += get(dy[m * step + c0 + j]);
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
    int64_t M = l->M, N = l->N;
    if (l->act != ACT_NONE)
        BY_THREADS(threads_for(s, M * N), slope_rows(dy, pre, l));
    if (db)
        BY_THREADS(threads_for(s, M * N), column_sums(db, dy, l));
    if (dx) {
        struct gemm g = input_gemm(l);
        REQUIRE(l->wide_dx || !l->add_dx);
        product(s, &g, dy, w, dx);
    }
    if (dw && M == 0 && l->unset_dw)
        memset(dw, 0, (size_t)(N * l->K) * sizeof *dw);
    if (dw && M > 0) {
        struct gemm g = weight_gemm(l);
        product(s, &g, l->in_out ? x : dy, l->in_out ? dy : x, dw);
    }
}

enum { ACT_CHUNK = 4096 };

void FN(act_forward)(struct stream *s, void *y, const void *x, enum act_kind act, int64_t n_elem)
{
    elem *to = y;
    const elem *from = x;
    REQUIRE(act != ACT_NONE);
#pragma omp parallel for schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i += ACT_CHUNK)
        value_any(to + i, from + i, min_i64(ACT_CHUNK, n_elem - i), act);
}

void FN(act_backward)(struct stream *s, void *dy, const void *x, enum act_kind act, int64_t n_elem)
{
    elem *d = dy;
    const elem *at = x;
    REQUIRE(act != ACT_NONE);
#pragma omp parallel for schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i += ACT_CHUNK)
        slope_any(d + i, at + i, min_i64(ACT_CHUNK, n_elem - i), act);
}

void FN(act_both)(struct stream *s, void *y, void *slope, const void *x, enum act_kind act,
                  int64_t n_elem)
{
    elem *to = y, *d = slope;
    const elem *from = x;
    REQUIRE(act != ACT_NONE);
#pragma omp parallel for schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i += ACT_CHUNK)
        both_any(to + i, d + i, from + i, min_i64(ACT_CHUNK, n_elem - i), act);
}
