/* Causal attention by blocks of query rows: scores of a block are made, used and forgotten; the
 * masked half is never computed.  Only lse is kept for backward, which makes the probabilities
 * again (Dao et al. 2022, arXiv:2205.14135).  A task is one sample and one key head, so the
 * gradients of shared key heads are added in a fixed order. */
#include "device/cpu/kernels/block.h"
#include "device/cpu/kernels/drop.h"
#include "device/cpu/kernels/vmath.h"

size_t FN(attention_scratch)(const struct attention *a, int n_threads)
{
    return scratch_floats(a) * sizeof(float) * (size_t)n_threads;
}

static void block_drop(const struct block *k)
{
    const struct attention *a = k->a;
    for (int64_t i = 0; i < k->rows; i++) {
        int64_t t = k->t0 + i;
        drop_factors(&a->drop, k->b, (k->h * a->T + t) * a->T, t + 1, k->w->drop + i * k->w->l.Ts);
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
    const struct layout *l = &k->w->l;
    float inverse[BLOCK_ROWS];
    pack_words(l, k->w->q, q + (k->b * a->T + k->t0) * a->q_stride + k->h * a->D, a->q_stride,
               k->rows);
    block_scores(k, k->w->p, k->w->q, k->w->kt);
    if (a->drop.p > 0.0f)
        block_drop(k);
    for (int64_t i = 0; i < k->rows; i++) {
        float *p = k->w->p + i * l->Ts;
        int64_t n = k->t0 + i + 1;
        int64_t whole = hide_rest(p, n, a->scale);
        float top = top_score(p, whole, a->scale);
        exp_scores(p, n, k->cols, a->scale, top);
        float sum = row_sum(p, whole);
        inverse[i] = 1.0f / sum;
        lse[(k->b * a->H + k->h) * a->T + k->t0 + i] = top + logf(sum);
        if (a->drop.p > 0.0f)
            scale_by(p, k->w->drop + i * l->Ts, n);
    }
    block_pack(k, k->w->p);
    block_mix(k, k->w->p, k->w->vp);
    for (int64_t i = 0; i < k->rows; i++) {
        elem *to = y + (k->b * a->T + k->t0 + i) * a->H * a->D + k->h * a->D;
        const float *from = k->w->out + i * l->Dp;
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
    pack_turned(&w->l, w->kt, in->k + at, a->kv_stride);
    pack_rows(&w->l, w->vp, in->v + at, a->kv_stride, a->T, w->l.Tp);
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
        struct scratch w =
            scratch_cut(a, pair_of(s->dev), (float *)scratch + scratch_floats(a) * (size_t)i);
        for (int64_t task = i; task < tasks; task += n)
            forward_task(a, &w, &in, y, lse, task);
    }
}

/* p becomes p · factor (what y was mixed with), dp the gradient of the scores. */
static void block_slopes(const struct block *k, const float *lse)
{
    const struct attention *a = k->a;
    int64_t Ts = k->w->l.Ts;
    for (int64_t i = 0; i < k->rows; i++) {
        float *p = k->w->p + i * Ts, *dp = k->w->dp + i * Ts;
        const float *f = k->w->drop + i * Ts;
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

static float dot(const elem *x, const elem *y, int64_t n)
{
    vf a = vf_set1(0.0f);
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        a = vf_fma(elem_load(x + i), elem_load(y + i), a);
    float sum = vf_sum(a);
    for (; i < n; i++)
        sum += get(x[i]) * get(y[i]);
    return sum;
}

static void block_backward(const struct block *k, const struct inputs *in)
{
    const struct attention *a = k->a;
    struct scratch *w = k->w;
    const struct layout *l = &w->l;
    int64_t row = k->b * a->T + k->t0, y_stride = a->H * a->D;
    const elem *q = in->q + row * a->q_stride + k->h * a->D;
    elem *dq = in->dq + row * a->q_stride + k->h * a->D;
    const elem *y = in->y + row * y_stride + k->h * a->D;
    const elem *dy = in->dy + row * y_stride + k->h * a->D;
    pack_words(l, w->q, q, a->q_stride, k->rows);
    pack_words(l, w->g, dy, y_stride, k->rows);
    if (l->pair == 2) {
        pack_rows(l, w->qp, q, a->q_stride, k->rows, round_up(k->rows, 2));
        pack_rows(l, w->gp, dy, y_stride, k->rows, round_up(k->rows, 2));
    }
    for (int64_t i = 0; i < k->rows; i++)
        w->delta[i] = dot(dy + i * y_stride, y + i * y_stride, a->D);
    if (a->drop.p > 0.0f)
        block_drop(k);
    block_scores(k, w->p, w->q, w->kt);
    block_scores(k, w->dp, w->g, w->vt);
    block_slopes(k, in->lse);
    block_pack(k, w->p);
    block_spread(k, w->dv, w->p, w->gp);
    block_pack(k, w->dp);
    block_spread(k, w->dk, w->dp, w->qp);
    block_mix(k, w->dp, w->kp);
    for (int64_t i = 0; i < k->rows; i++)
        narrow_row(dq + i * a->q_stride, w->out + i * l->Dp, a->D);
}

static void backward_task(const struct attention *a, struct scratch *w, const struct inputs *in,
                          int64_t task)
{
    int64_t b = task / a->n_kv_head, kv = task % a->n_kv_head, group = a->H / a->n_kv_head;
    int64_t at = b * a->T * a->kv_stride + kv * a->D;
    const struct layout *l = &w->l;
    pack_turned(l, w->kt, in->k + at, a->kv_stride);
    pack_turned(l, w->vt, in->v + at, a->kv_stride);
    pack_rows(l, w->kp, in->k + at, a->kv_stride, a->T, l->Tp);
    memset(w->dk, 0, (size_t)(l->Tp * l->Dp) * sizeof(float));
    memset(w->dv, 0, (size_t)(l->Tp * l->Dp) * sizeof(float));
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t t0 = 0; t0 < a->T; t0 += BLOCK_ROWS) {
            struct block k = block_at(a, w, b, h, t0);
            block_backward(&k, in);
        }
    for (int64_t t = 0; t < a->T; t++) {
        narrow_row(in->dk + at + t * a->kv_stride, w->dk + t * l->Dp, a->D);
        narrow_row(in->dv + at + t * a->kv_stride, w->dv + t * l->Dp, a->D);
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
        struct scratch w =
            scratch_cut(a, pair_of(s->dev), (float *)scratch + scratch_floats(a) * (size_t)i);
        for (int64_t task = i; task < tasks; task += n)
            backward_task(a, &w, &in, task);
    }
}
