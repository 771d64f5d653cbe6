/* Private to kernels/: a block of attention's query rows, a thread's scratch for it, and the
 * products that it takes part in. */
#pragma once
#include "device/cpu/kernels/operand.h"

/* One thread's scratch, in words. */
struct scratch {
    struct layout l;
    float *kt, *vt; /* (Dw, Ts) keys and values, transposed */
    float *kp, *vp; /* (Tp / pair, Dp) the same as rows */
    float *dk, *dv; /* (Tp, Dp) floats */
    float *q, *g;   /* (BLOCK_ROWS, Dp) queries, gradients of y, for scores … */
    float *qp, *gp; /* (BLOCK_ROWS / pair, Dp) … and for gradients: the same without pairs */
    float *out;     /* (BLOCK_ROWS, Dp) floats */
    float *p, *dp, *drop; /* (BLOCK_ROWS, Ts) floats */
    float *xw;            /* (BLOCK_ROWS, Ts / 2) p or dp in pairs along a row … */
    float *xp;            /* (BLOCK_ROWS / 2, Ts) … and along a column */
    float *delta;         /* (BLOCK_ROWS) */
};

/* Whether scores and the like are multiplied in bf16, as the large products are.  Not by AMX, which
 * wants larger ones; its cores multiply single floats twice as fast as pairs, see cpu.c. */
static inline int pair_of(const struct device *dev)
{
    bool fast = dev->isa == CPU_ISA_AVX512_BF16;
    return HAVE_TILE_PAIRS && ELEM_BF16 && fast && device_native_bf16(dev) ? 2 : 1;
}

static inline float *take(float **at, int64_t n)
{
    float *p = *at;
    *at += n;
    return p;
}

static inline struct scratch scratch_cut(const struct attention *a, int pair, float *at)
{
    struct scratch w = {.l = layout_make(a->T, a->D, pair)};
    const struct layout *l = &w.l;
    w.kt = take(&at, l->Dw * l->Ts);
    w.vt = take(&at, l->Dw * l->Ts);
    w.kp = take(&at, l->Tp / pair * l->Dp);
    w.vp = take(&at, l->Tp / pair * l->Dp);
    w.dk = take(&at, l->Tp * l->Dp);
    w.dv = take(&at, l->Tp * l->Dp);
    w.q = take(&at, BLOCK_ROWS * l->Dp);
    w.g = take(&at, BLOCK_ROWS * l->Dp);
    w.qp = pair == 1 ? w.q : take(&at, BLOCK_ROWS / pair * l->Dp);
    w.gp = pair == 1 ? w.g : take(&at, BLOCK_ROWS / pair * l->Dp);
    w.out = take(&at, BLOCK_ROWS * l->Dp);
    w.p = take(&at, BLOCK_ROWS * l->Ts);
    w.dp = take(&at, BLOCK_ROWS * l->Ts);
    w.drop = take(&at, BLOCK_ROWS * l->Ts);
    w.xw = pair == 1 ? NULL : take(&at, BLOCK_ROWS * l->Ts / 2);
    w.xp = pair == 1 ? NULL : take(&at, BLOCK_ROWS / 2 * l->Ts);
    w.delta = take(&at, BLOCK_ROWS);
    return w;
}

/* Enough for either kind of words. */
static inline size_t scratch_floats(const struct attention *a)
{
    struct layout l = layout_make(a->T, a->D, 1);
    return (size_t)(2 * a->D * l.Ts + 4 * l.Tp * l.Dp + BLOCK_ROWS * (4 * l.Dp + 4 * l.Ts + 1));
}

/* One block of query rows t0 … t0 + rows - 1 of head h of sample b. */
struct block {
    const struct attention *a;
    struct scratch *w;
    int64_t b, h, t0, rows;
    int64_t n_u, cols; /* keys that any of its rows sees; the same, padded */
};

static inline struct block block_at(const struct attention *a, struct scratch *w, int64_t b,
                                    int64_t h, int64_t t0)
{
    int64_t rows = min_i64(BLOCK_ROWS, a->T - t0);
    return (struct block){a, w, b, h, t0, rows, t0 + rows, round_up(t0 + rows, PAD)};
}

static inline void multiply(const struct layout *l, const struct tile *t)
{
#if HAVE_TILE_PAIRS
    if (l->pair == 2) {
        tile_pairs(t);
        return;
    }
#endif
    (void)l;
    tile_product(t);
}

/* Each group of rows that a register tile takes goes as far as its last row sees. */
static inline int64_t seen_by(const struct block *k, int64_t i0)
{
    return min_i64(k->t0 + i0 + TILE_ROWS, k->n_u);
}

/* x (rows, cols) = left (rows, Dp) · right (D, Tp), where a row's group sees it */
static inline void block_scores(const struct block *k, float *x, const float *left,
                                const float *right)
{
    const struct layout *l = &k->w->l;
    for (int64_t i0 = 0; i0 < k->rows; i0 += TILE_ROWS) {
        struct tile t = {.a = left + i0 * l->Dp,
                         .a_row = l->Dp,
                         .a_k = 1,
                         .b = right,
                         .ldb = l->Ts,
                         .c = x + i0 * l->Ts,
                         .ldc = l->Ts,
                         .rows = min_i64(TILE_ROWS, k->rows - i0),
                         .cols = round_up(seen_by(k, i0), PAD),
                         .K = l->Dw};
        multiply(l, &t);
    }
}

/* x (rows, cols) as the two below want it; a row behind an odd number of them becomes zero. */
static inline void block_pack(const struct block *k, float *x)
{
#if HAVE_TILE_PAIRS
    const struct layout *l = &k->w->l;
    if (l->pair == 1)
        return;
    if (k->rows % 2)
        memset(x + k->rows * l->Ts, 0, (size_t)k->cols * sizeof *x);
    for (int64_t i = 0; i < k->rows; i += 2)
        tile_pack(k->w->xw + i * l->Ts / 2, k->w->xw + (i + 1) * l->Ts / 2,
                  k->w->xp + i / 2 * l->Ts, x + i * l->Ts, x + (i + 1) * l->Ts, k->cols);
#else
    (void)k, (void)x;
#endif
}

/* out (rows, Dp) = x (rows, n_u) · right (Tp, Dp) */
static inline void block_mix(const struct block *k, const float *x, const float *right)
{
    const struct layout *l = &k->w->l;
    int64_t a_row = l->Ts / l->pair;
    for (int64_t i0 = 0; i0 < k->rows; i0 += TILE_ROWS) {
        struct tile t = {.a = (l->pair == 2 ? k->w->xw : x) + i0 * a_row,
                         .a_row = a_row,
                         .a_k = 1,
                         .b = right,
                         .ldb = l->Dp,
                         .c = k->w->out + i0 * l->Dp,
                         .ldc = l->Dp,
                         .rows = min_i64(TILE_ROWS, k->rows - i0),
                         .cols = l->Dp,
                         .K = (seen_by(k, i0) + l->pair - 1) / l->pair};
        multiply(l, &t);
    }
}

/* acc (n_u, Dp) += xᵀ (n_u, rows) · right (rows, Dp); keys of the block itself from their own row
 * on. */
static inline void block_spread(const struct block *k, float *acc, const float *x,
                                const float *right)
{
    const struct layout *l = &k->w->l;
    const float *a = l->pair == 2 ? k->w->xp : x;
    int64_t words = (k->rows + l->pair - 1) / l->pair;
    for (int64_t u = 0, step; u < k->n_u; u += step) {
        step = u < k->t0 ? k->t0 : TILE_ROWS; /* those before the block at once */
        int64_t before = u < k->t0 ? 0 : (u - k->t0) / l->pair;
        struct tile t = {.a = a + u + before * l->Ts,
                         .a_row = 1,
                         .a_k = l->Ts,
                         .b = right + before * l->Dp,
                         .ldb = l->Dp,
                         .c = acc + u * l->Dp,
                         .ldc = l->Dp,
                         .rows = min_i64(step, k->n_u - u),
                         .cols = l->Dp,
                         .K = words - before,
                         .add = true};
        multiply(l, &t);
    }
}
