/* Causal attention by blocks of query rows: scores of a block are made, used and forgotten; the
 * masked half is never computed.  Only lse is kept for backward, which makes the probabilities
 * again (Dao et al. 2022, arXiv:2205.14135).  A task is one sample and one key head, so the
 * gradients of shared key heads are added in a fixed order. */
#include "device/cpu/kernels/drop.h"
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/tile.h"
#include "device/cpu/kernels/vmath.h"

enum { BLOCK_ROWS = 32, PAD = 16 };

/* One thread's scratch.  Tp and Dp: T and D rounded up to PAD, the padding is zero. */
struct scratch {
    float *kt, *vt;       /* (D, Tp) keys and values, transposed */
    float *kp, *vp;       /* (Tp, Dp) the same as rows */
    float *dk, *dv;       /* (Tp, Dp) */
    float *qp, *gp;       /* (BLOCK_ROWS, Dp) queries, gradients of y */
    float *out;           /* (BLOCK_ROWS, Dp) */
    float *p, *dp, *drop; /* (BLOCK_ROWS, Tp) */
    float *delta;         /* (BLOCK_ROWS) */
};

static size_t scratch_floats(const struct attention *a)
{
    int64_t Tp = round_up(a->T, PAD), Dp = round_up(a->D, PAD);
    return (size_t)(2 * a->D * Tp + 4 * Tp * Dp + BLOCK_ROWS * (3 * (Dp + Tp) + 1));
}

size_t FN(attention_scratch)(const struct attention *a, int n_threads)
{
    return scratch_floats(a) * sizeof(float) * (size_t)n_threads;
}

static float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += n;
    return p;
}

static struct scratch scratch_cut(const struct attention *a, float *at)
{
    int64_t Tp = round_up(a->T, PAD), Dp = round_up(a->D, PAD);
    struct scratch w;
    w.kt = take(&at, a->D * Tp);
    w.vt = take(&at, a->D * Tp);
    w.kp = take(&at, Tp * Dp);
    w.vp = take(&at, Tp * Dp);
    w.dk = take(&at, Tp * Dp);
    w.dv = take(&at, Tp * Dp);
    w.qp = take(&at, BLOCK_ROWS * Dp);
    w.gp = take(&at, BLOCK_ROWS * Dp);
    w.out = take(&at, BLOCK_ROWS * Dp);
    w.p = take(&at, BLOCK_ROWS * Tp);
    w.dp = take(&at, BLOCK_ROWS * Tp);
    w.drop = take(&at, BLOCK_ROWS * Tp);
    w.delta = take(&at, BLOCK_ROWS);
    return w;
}

/* The first n < VL of a vector, zero behind them. */
static vf short_load(const elem *x, int64_t n)
{
    float lane[VL] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i] = get(x[i]);
    return vf_load(lane);
}

/* to (D, Tp) = x (T, D) transposed, in squares of vectors; the padding is zero. */
static void transpose(float *to, const elem *x, int64_t stride, int64_t T, int64_t D)
{
    int64_t Tp = round_up(T, PAD);
    for (int64_t t0 = 0; t0 < Tp; t0 += VL)
        for (int64_t d0 = 0; d0 < D; d0 += VL) {
            vf v[VL];
            int64_t n = min_i64(VL, D - d0);
            for (int i = 0; i < VL; i++)
                v[i] = t0 + i >= T ? vf_set1(0.0f)
                       : n == VL   ? elem_load(x + (t0 + i) * stride + d0)
                                   : short_load(x + (t0 + i) * stride + d0, n);
            vf_transpose(v);
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++)
                if (i < n)
                    vf_store(to + (d0 + i) * Tp + t0, v[i]);
        }
}

static void widen_row(float *y, const elem *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = get(x[i]);
}

static void narrow_row(elem *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = put(x[i]);
}

/* to (rows, Dp) = x (n, D), zero in the padding and in rows n … rows - 1. */
static void copy_rows(float *to, const elem *x, int64_t stride, int64_t n, int64_t rows, int64_t D)
{
    int64_t Dp = round_up(D, PAD);
    for (int64_t t = 0; t < n; t++) {
        widen_row(to + t * Dp, x + t * stride, D);
        memset(to + t * Dp + D, 0, (size_t)(Dp - D) * sizeof *to);
    }
    if (rows > n)
        memset(to + n * Dp, 0, (size_t)((rows - n) * Dp) * sizeof *to);
}

/* One block of query rows t0 … t0 + rows - 1 of head h of sample b. */
struct block {
    const struct attention *a;
    struct scratch *w;
    int64_t b, h, t0, rows;
    int64_t n_u, cols; /* keys that any of its rows sees; the same, padded */
};

static struct block block_at(const struct attention *a, struct scratch *w, int64_t b, int64_t h,
                             int64_t t0)
{
    int64_t rows = min_i64(BLOCK_ROWS, a->T - t0);
    return (struct block){a, w, b, h, t0, rows, t0 + rows, round_up(t0 + rows, PAD)};
}

/* x (rows, cols) = left (rows, Dp) · right (D, Tp) */
static void block_scores(const struct block *k, float *x, const float *left, const float *right)
{
    int64_t Tp = round_up(k->a->T, PAD);
    struct tile t = {.a = left,
                     .a_row = round_up(k->a->D, PAD),
                     .a_k = 1,
                     .b = right,
                     .ldb = Tp,
                     .c = x,
                     .ldc = Tp,
                     .rows = k->rows,
                     .cols = k->cols,
                     .K = k->a->D};
    tile_product(&t);
}

/* out (rows, Dp) = x (rows, n_u) · right (Tp, Dp) */
static void block_mix(const struct block *k, const float *x, const float *right)
{
    int64_t Tp = round_up(k->a->T, PAD), Dp = round_up(k->a->D, PAD);
    struct tile t = {.a = x,
                     .a_row = Tp,
                     .a_k = 1,
                     .b = right,
                     .ldb = Dp,
                     .c = k->w->out,
                     .ldc = Dp,
                     .rows = k->rows,
                     .cols = Dp,
                     .K = k->n_u};
    tile_product(&t);
}

/* acc (n_u, Dp) += xᵀ (n_u, rows) · right (rows, Dp) */
static void block_spread(const struct block *k, float *acc, const float *x, const float *right)
{
    int64_t Tp = round_up(k->a->T, PAD), Dp = round_up(k->a->D, PAD);
    struct tile t = {.a = x,
                     .a_row = 1,
                     .a_k = Tp,
                     .b = right,
                     .ldb = Dp,
                     .c = acc,
                     .ldc = Dp,
                     .rows = k->n_u,
                     .cols = Dp,
                     .K = k->rows,
                     .add = true};
    tile_product(&t);
}

static void block_drop(const struct block *k)
{
    const struct attention *a = k->a;
    int64_t Tp = round_up(a->T, PAD);
    for (int64_t i = 0; i < k->rows; i++) {
        int64_t t = k->t0 + i;
        drop_factors(&a->drop, k->b, (k->h * a->T + t) * a->T, t + 1, k->w->drop + i * Tp);
    }
}

static void scale_by(float *x, const float *f, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= f[i];
}

/* Hide x[n …] up to a whole vector, so that no loop over scores needs a tail. */
static int64_t hide_rest(float *x, int64_t n, float scale)
{
    int64_t whole = round_up(n, PAD);
    for (int64_t u = n; u < whole; u++)
        x[u] = scale >= 0.0f ? -INFINITY : INFINITY;
    return whole;
}

/* x[0 … n-1] = e^(scale x - less), zero up to cols. */
static void exp_scores(float *x, int64_t n, int64_t cols, float scale, float less)
{
    int64_t whole = round_up(n, PAD);
#pragma omp simd
    for (int64_t u = 0; u < whole; u++)
        x[u] = exp_f32(FMA(scale, x[u], -less));
    memset(x + n, 0, (size_t)(cols - n) * sizeof *x);
}

/* Largest of scale x. */
static float top_score(const float *x, int64_t n, float scale)
{
    if (scale >= 0.0f)
        return scale * row_max(x, n);
    float low = x[0];
    for (int64_t u = 1; u < n; u++)
        low = x[u] < low ? x[u] : low;
    return scale * low;
}

static void block_forward(const struct block *k, elem *y, float *lse, const elem *q)
{
    const struct attention *a = k->a;
    int64_t Tp = round_up(a->T, PAD), Dp = round_up(a->D, PAD);
    float inverse[BLOCK_ROWS];
    copy_rows(k->w->qp, q + (k->b * a->T + k->t0) * a->q_stride + k->h * a->D, a->q_stride, k->rows,
              k->rows, a->D);
    block_scores(k, k->w->p, k->w->qp, k->w->kt);
    if (a->drop.p > 0.0f)
        block_drop(k);
    for (int64_t i = 0; i < k->rows; i++) {
        float *p = k->w->p + i * Tp;
        int64_t n = k->t0 + i + 1;
        int64_t whole = hide_rest(p, n, a->scale);
        float top = top_score(p, whole, a->scale);
        exp_scores(p, n, k->cols, a->scale, top);
        float sum = row_sum(p, whole);
        inverse[i] = 1.0f / sum;
        lse[(k->b * a->H + k->h) * a->T + k->t0 + i] = top + logf(sum);
        if (a->drop.p > 0.0f)
            scale_by(p, k->w->drop + i * Tp, n);
    }
    block_mix(k, k->w->p, k->w->vp);
    for (int64_t i = 0; i < k->rows; i++) {
        elem *to = y + (k->b * a->T + k->t0 + i) * a->H * a->D + k->h * a->D;
        const float *from = k->w->out + i * Dp;
#pragma omp simd
        for (int64_t d = 0; d < a->D; d++)
            to[d] = put(from[d] * inverse[i]);
    }
}

struct inputs {
    const elem *q, *k, *v, *dy, *y;
    const float *lse;
    elem *dq, *dk, *dv;
};

static void forward_task(const struct attention *a, struct scratch *w, const struct inputs *in,
                         elem *y, float *lse, int64_t task)
{
    int64_t b = task / a->n_kv_head, kv = task % a->n_kv_head, group = a->H / a->n_kv_head;
    int64_t at = b * a->T * a->kv_stride + kv * a->D;
    transpose(w->kt, in->k + at, a->kv_stride, a->T, a->D);
    copy_rows(w->vp, in->v + at, a->kv_stride, a->T, round_up(a->T, PAD), a->D);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t t0 = 0; t0 < a->T; t0 += BLOCK_ROWS) {
            struct block k = block_at(a, w, b, h, t0);
            block_forward(&k, y, lse, in->q);
        }
}

/* Tasks i, i + n, … are thread i's, whose scratch is the i-th. */
void FN(attention_forward)(struct stream *s, const struct attention *a, void *y, float *lse,
                           const void *q, const void *k, const void *v, void *scratch)
{
    struct inputs in = {.q = q, .k = k, .v = v};
    int64_t tasks = a->B * a->n_kv_head;
    int n = threads_for(s, a->B * a->H * a->T * a->T);
#pragma omp parallel for schedule(static, 1) num_threads(n)
    for (int i = 0; i < n; i++) {
        struct scratch w = scratch_cut(a, (float *)scratch + scratch_floats(a) * (size_t)i);
        for (int64_t task = i; task < tasks; task += n)
            forward_task(a, &w, &in, y, lse, task);
    }
}

/* p becomes p · factor (what y was mixed with), dp the gradient of the scores. */
static void block_slopes(const struct block *k, const float *lse)
{
    const struct attention *a = k->a;
    int64_t Tp = round_up(a->T, PAD);
    for (int64_t i = 0; i < k->rows; i++) {
        float *p = k->w->p + i * Tp, *dp = k->w->dp + i * Tp;
        const float *f = k->w->drop + i * Tp;
        int64_t n = k->t0 + i + 1;
        int64_t whole = round_up(n, PAD);
        float delta = k->w->delta[i];
        exp_scores(p, n, k->cols, a->scale, lse[(k->b * a->H + k->h) * a->T + k->t0 + i]);
        if (a->drop.p > 0.0f) {
#pragma omp simd
            for (int64_t u = 0; u < n; u++) {
                dp[u] = p[u] * (dp[u] * f[u] - delta) * a->scale;
                p[u] *= f[u];
            }
        } else {
#pragma omp simd
            for (int64_t u = 0; u < whole; u++)
                dp[u] = p[u] * (dp[u] - delta) * a->scale;
        }
        memset(dp + n, 0, (size_t)(k->cols - n) * sizeof *dp);
    }
}

static float dot(const float *x, const elem *y, int64_t n)
{
    vf a = vf_set1(0.0f);
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        a = vf_fma(vf_load(x + i), elem_load(y + i), a);
    float sum = vf_sum(a);
    for (; i < n; i++)
        sum += x[i] * get(y[i]);
    return sum;
}

static void block_backward(const struct block *k, const struct inputs *in)
{
    const struct attention *a = k->a;
    struct scratch *w = k->w;
    int64_t Dp = round_up(a->D, PAD), row = k->b * a->T + k->t0;
    int64_t q_at = row * a->q_stride + k->h * a->D;
    int64_t y_stride = a->H * a->D, y_at = row * y_stride + k->h * a->D;
    copy_rows(w->qp, in->q + q_at, a->q_stride, k->rows, k->rows, a->D);
    copy_rows(w->gp, in->dy + y_at, y_stride, k->rows, k->rows, a->D);
    for (int64_t i = 0; i < k->rows; i++)
        w->delta[i] = dot(w->gp + i * Dp, in->y + y_at + i * y_stride, a->D);
    if (a->drop.p > 0.0f)
        block_drop(k);
    block_scores(k, w->p, w->qp, w->kt);
    block_scores(k, w->dp, w->gp, w->vt);
    block_slopes(k, in->lse);
    block_spread(k, w->dv, w->p, w->gp);
    block_spread(k, w->dk, w->dp, w->qp);
    block_mix(k, w->dp, w->kp);
    for (int64_t i = 0; i < k->rows; i++)
        narrow_row(in->dq + q_at + i * a->q_stride, w->out + i * Dp, a->D);
}

static void backward_task(const struct attention *a, struct scratch *w, const struct inputs *in,
                          int64_t task)
{
    int64_t b = task / a->n_kv_head, kv = task % a->n_kv_head, group = a->H / a->n_kv_head;
    int64_t at = b * a->T * a->kv_stride + kv * a->D;
    int64_t Tp = round_up(a->T, PAD), Dp = round_up(a->D, PAD);
    transpose(w->kt, in->k + at, a->kv_stride, a->T, a->D);
    transpose(w->vt, in->v + at, a->kv_stride, a->T, a->D);
    copy_rows(w->kp, in->k + at, a->kv_stride, a->T, Tp, a->D);
    memset(w->dk, 0, (size_t)(Tp * Dp) * sizeof(float));
    memset(w->dv, 0, (size_t)(Tp * Dp) * sizeof(float));
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t t0 = 0; t0 < a->T; t0 += BLOCK_ROWS) {
            struct block k = block_at(a, w, b, h, t0);
            block_backward(&k, in);
        }
    for (int64_t t = 0; t < a->T; t++) {
        narrow_row(in->dk + at + t * a->kv_stride, w->dk + t * Dp, a->D);
        narrow_row(in->dv + at + t * a->kv_stride, w->dv + t * Dp, a->D);
    }
}

void FN(attention_backward)(struct stream *s, const struct attention *a, void *dq, void *dk,
                            void *dv, const void *dy, const void *y, const float *lse,
                            const void *q, const void *k, const void *v, void *scratch)
{
    struct inputs in = {q, k, v, dy, y, lse, dq, dk, dv};
    int64_t tasks = a->B * a->n_kv_head;
    int n = threads_for(s, a->B * a->H * a->T * a->T);
#pragma omp parallel for schedule(static, 1) num_threads(n)
    for (int i = 0; i < n; i++) {
        struct scratch w = scratch_cut(a, (float *)scratch + scratch_floats(a) * (size_t)i);
        for (int64_t task = i; task < tasks; task += n)
            backward_task(a, &w, &in, task);
    }
}
