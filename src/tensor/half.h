/* The two 16-bit floats, one value at a time: bfloat16, the upper half of a float, and IEEE half
 * precision (binary16).  Rounding is to nearest, ties to even.  Integers do the work, without a
 * branch, so that compilers make vectors of it and every build gives the same bits; for fp16 those
 * of the processors' own instructions (F. Giesen's conversions).  All Local. */
#pragma once
#include "base/bits.h"
#include "tensor/tensor.h"

static inline float bf16_widen(uint16_t x)
{
    return f32_from_bits((uint32_t)x << 16);
}

/* Rounding up may carry a NaN to infinity or beyond, so those are cut, with the quiet bit set. */
static inline uint16_t bf16_narrow(float f)
{
    uint32_t u = f32_bits(f);
    uint32_t up = u + 0x7FFFu + ((u >> 16) & 1u), nan = u | 0x400000u;
    return (uint16_t)((f != f ? nan : up) >> 16);
}

#define F16_EXP 0x0F800000u    /* a half's exponent, where a float's begins */
#define F16_REBIAS 0x38000000u /* 127 - 15 there */

/* Exact.  A subnormal half becomes 2^-14 (1 + m) first, from which 2^-14 is taken away. */
static inline float f16_widen(uint16_t x)
{
    uint32_t u = (uint32_t)(x & 0x7FFFu) << 13, exp = u & F16_EXP;
    uint32_t up = exp == F16_EXP ? 2u * F16_REBIAS : F16_REBIAS;
    uint32_t low = exp == 0 ? 1u << 23 : 0u;
    float less = exp == 0 ? 0x1p-14f : 0.0f;
    uint32_t v = f32_bits(f32_from_bits(u + up + low) - less);
    return f32_from_bits(v | (uint32_t)(x & 0x8000u) << 16);
}

/* 65520 and more become infinite; a NaN keeps the top of its payload, made quiet.  Below 2^-14 an
 * addition to 0.5 does the rounding: a half's last place stands there at the end of a float. */
static inline uint16_t f16_narrow(float f)
{
    uint32_t u = f32_bits(f), sign = u & 0x80000000u, a = u ^ sign;
    uint32_t normal = (a - F16_REBIAS + 0xFFFu + ((a >> 13) & 1u)) >> 13;
    uint32_t small = f32_bits(f32_from_bits(a) + 0.5f) - 0x3F000000u;
    uint32_t high = a > 0x7F800000u ? 0x7E00u | ((a >> 13) & 0x3FFu) : 0x7C00u;
    uint32_t h = a >= 0x47800000u ? high : a < 0x38800000u ? small : normal;
    return (uint16_t)(h | sign >> 16);
}

/* Either of them: t is DTYPE_BF16 or DTYPE_F16. */
static inline float half_widen(enum dtype t, uint16_t x)
{
    return t == DTYPE_BF16 ? bf16_widen(x) : f16_widen(x);
}

static inline uint16_t half_narrow(enum dtype t, float f)
{
    return t == DTYPE_BF16 ? bf16_narrow(f) : f16_narrow(f);
}

/* Arrays of n.  to = x rounded; y = y + x, y rounded before and behind; out = a + b likewise. */
static inline void half_narrow_array(enum dtype t, uint16_t *to, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = half_narrow(t, x[i]);
}

static inline float half_round(enum dtype t, float x)
{
    return half_widen(t, half_narrow(t, x));
}

static inline void half_add_array(enum dtype t, float *y, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = half_round(t, half_round(t, y[i]) + half_widen(t, x[i]));
}

static inline void half_sum_array(enum dtype t, float *out, const float *a, const float *b,
                                  int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = half_round(t, half_round(t, a[i]) + half_round(t, b[i]));
}
