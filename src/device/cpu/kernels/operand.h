/* Private to kernels/: the operands of attention's small products, copied out of the rows of a
 * batch into the words of tile.h.  Floats, or pairs of bf16 on a machine that multiplies those. */
#pragma once
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/tile.h"

enum { BLOCK_ROWS = 32, PAD = 16 };

/* How a head is laid out.  Whatever reaches beyond T or D up to PAD is zero. */
struct layout {
    int pair;       /* elements of a word along K: 1 or 2 */
    int64_t T, D;   /* tokens, elements of a head */
    int64_t Tp, Dp; /* rounded up to PAD */
    int64_t Ts;     /* words from a row of Tp to the next: an odd number of cache lines, since rows
                       that lie a power of two apart share too few places in a cache */
    int64_t Dw;     /* words of D along K */
};

static inline struct layout layout_make(int64_t T, int64_t D, int pair)
{
    int64_t Tp = round_up(T, PAD), Ts = Tp / PAD % 2 ? Tp : Tp + PAD;
    return (struct layout){.pair = pair,
                           .T = T,
                           .D = D,
                           .Tp = Tp,
                           .Dp = round_up(D, PAD),
                           .Ts = Ts,
                           .Dw = (D + pair - 1) / pair};
}

/* The first n < VL of a vector, zero behind them. */
static inline vf short_load(const elem *x, int64_t n)
{
    float lane[VL] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i] = get(x[i]);
    return vf_load(lane);
}

static inline void widen_row(float *y, const elem *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = get(x[i]);
}

static inline void narrow_row(elem *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = put(x[i]);
}

/* Words d0 … d0 + VL - 1 of a row. */
static inline vf word_load(const struct layout *l, const elem *x, int64_t d0)
{
    int64_t n = min_i64((int64_t)VL * l->pair, l->D - d0 * l->pair);
    x += d0 * l->pair;
    if (l->pair == 1)
        return n == VL ? elem_load(x) : short_load(x, n);
    float lane[VL] = {0};
    if (n == (int64_t)VL * l->pair)
        memcpy(lane, x, sizeof lane); /* no call: its length is known */
    else
        memcpy(lane, x, (size_t)n * sizeof *x);
    return vf_load(lane);
}

/* A whole vector of words. */
static inline vf whole_load(const struct layout *l, const elem *x)
{
    float lane[VL];
    if (l->pair == 1)
        return elem_load(x);
    memcpy(lane, x, sizeof lane); /* no call: its length is known */
    return vf_load(lane);
}

/* A square of words, whole or at an edge, to columns t0 … of rows d0 … of what pack_turned() makes.
 * The whole one is loaded without a question, so that many of its rows are on their way at once. */
static inline __attribute__((always_inline)) void turn_square(const struct layout *l, float *to,
                                                              const elem *x, int64_t stride,
                                                              int64_t t0, int64_t d0,
                                                              const bool whole)
{
    vf v[VL];
    int64_t n = whole ? VL : min_i64(VL, l->Dw - d0);
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        if (whole)
            v[i] = whole_load(l, x + (t0 + i) * stride + d0 * l->pair);
        else
            v[i] = t0 + i < l->T ? word_load(l, x + (t0 + i) * stride, d0) : vf_set1(0.0f);
    vf_transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        if (i < n)
            vf_store(to + (d0 + i) * l->Ts + t0, v[i]);
}

/* to (Dw, Ts) = x (T, D) transposed, in squares of vectors. */
static inline void pack_turned(const struct layout *l, float *to, const elem *x, int64_t stride)
{
    for (int64_t t0 = 0; t0 < l->Tp; t0 += VL)
        for (int64_t d0 = 0; d0 < l->Dw; d0 += VL)
            if (t0 + VL <= l->T && (d0 + VL) * l->pair <= l->D)
                turn_square(l, to, x, stride, t0, d0, true);
            else
                turn_square(l, to, x, stride, t0, d0, false);
}

/* Two rows of D, the first in the lower halves of Dp words; x1 NULL: a row of zeros. */
#if ELEM_BF16
static inline void interleave(const struct layout *l, float *to, const elem *x0, const elem *x1)
{
    enum { N = PAD };
    static const elem none[N];
    elem low[N], high[N];
    for (int64_t d0 = 0; d0 < l->Dp; d0 += N) {
        uint32_t word[N];
        int64_t n = min_i64(N, l->D - d0);
        if (n < N)
            memset(low, 0, sizeof low), memset(high, 0, sizeof high);
        if (n == N) { /* no calls: their length is known */
            memcpy(low, x0 + d0, sizeof low);
            memcpy(high, x1 ? x1 + d0 : none, sizeof high);
        } else {
            memcpy(low, x0 + d0, (size_t)n * sizeof *low);
            memcpy(high, x1 ? x1 + d0 : none, (size_t)n * sizeof *high);
        }
        for (int i = 0; i < N; i++)
            word[i] = (uint32_t)low[i] | (uint32_t)high[i] << 16;
        memcpy(to + d0, word, sizeof word);
    }
}
#endif

/* to (rows / pair, Dp) = x (n, D), for products whose K runs over the rows; those from n to rows,
 * which is a multiple of pair, are zero. */
static inline void pack_rows(const struct layout *l, float *to, const elem *x, int64_t stride,
                             int64_t n, int64_t rows)
{
    int64_t t = 0;
    for (; t < n; t += l->pair, to += l->Dp) {
        const elem *row = x + t * stride;
#if ELEM_BF16
        if (l->pair == 2) {
            interleave(l, to, row, t + 1 < n ? row + stride : NULL);
            continue;
        }
#endif
        widen_row(to, row, l->D);
        memset(to + l->D, 0, (size_t)(l->Dp - l->D) * sizeof *to);
    }
    if (rows > t)
        memset(to, 0, (size_t)((rows - t) / l->pair * l->Dp) * sizeof *to);
}

/* to (n, Dp) = x (n, D), for products whose K runs over D. */
static inline void pack_words(const struct layout *l, float *to, const elem *x, int64_t stride,
                              int64_t n)
{
    for (int64_t t = 0; t < n; t++, to += l->Dp) {
        const elem *row = x + t * stride;
        if (l->pair == 1) {
            widen_row(to, row, l->D);
            continue;
        }
        for (int64_t d0 = 0; d0 < l->Dw; d0 += VL)
            vf_store(to + d0, word_load(l, row, d0));
    }
}
