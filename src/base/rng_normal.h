/* Two normal numbers from two words (Box and Muller 1958), in floats without branches, so that a
 * compiler makes vectors of it, and without fma, so that every instruction set gives the same bits.
 * Polynomials are minimax fits; values are within 1e-6 of the exact ones, tails included. */
#pragma once
#include "base/bits.h"
#include <math.h>

/* ln((w + 1/2) / 2^32), from the distance to the nearer end, which a float holds at both. */
static inline float rng_log(uint32_t w)
{
    int32_t high = (int32_t)w >> 31; /* all ones in the upper half */
    float end = ((float)(int32_t)(w ^ (uint32_t)high) + 0.5f) * 0x1p-32f;
    float x = high ? 1.0f - end : end;
    /* x = 2^e m with m in [sqrt(1/2), sqrt(2)) */
    int32_t e = ((int32_t)f32_bits(x) - 0x3F3504F3) >> 23;
    float m = f32_from_bits(f32_bits(x) - ((uint32_t)e << 23));
    float t = ((high != 0) & (e == 0)) ? -end : m - 1.0f;
    float q = 0.0870043592f * t - 0.14267487f;
    q = q * t + 0.149147679f;
    q = q * t - 0.165775847f;
    q = q * t + 0.199630638f;
    q = q * t - 0.25001337f;
    q = q * t + 0.333339107f;
    return (t - t * t * (0.5f - t * q)) + (float)e * 0.693147182f;
}

/* Radius from w[0], angle 2 pi w[1] / 2^32 from the nearest quarter of a turn. */
static inline void rng_normal_pair(uint32_t w0, uint32_t w1, float *z0, float *z1)
{
    float r = sqrtf(-2.0f * rng_log(w0));
    uint32_t quarter = (w1 + 0x20000000u) >> 30;
    float x = (float)(int32_t)(w1 - (quarter << 30)) * 1.46291808e-9f, z = x * x;
    float s = x + x * z * (-0.166666549f + z * (0.00833217815f - z * 0.00019517299f));
    float c =
        (1.0f - 0.5f * z) + z * z * (0.0416666469f + z * (-0.00138873675f + z * 2.44384515e-05f));
    float a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;
    *z0 = r * f32_from_bits(f32_bits(a) ^ ((quarter + 1) & 2) << 30);
    *z1 = r * f32_from_bits(f32_bits(b) ^ (quarter & 2) << 30);
}
