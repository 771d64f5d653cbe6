/* Private to kernels/: bfloat16, the upper half of a float, alone and in vectors. */
#pragma once
#include "device/cpu/kernels/vec.h"

typedef uint16_t vh __attribute__((vector_size(2 * VL)));
typedef uint32_t vw __attribute__((vector_size(4 * VL)));

static inline float bf16_widen(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest, ties to even.  Rounding up may carry a NaN to infinity or beyond, so those are cut,
 * with the quiet bit set. */
static inline uint16_t bf16_narrow(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t up = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : up);
}

/* Compilers widen a whole vector by halves. */
static inline vf bf16_load(const uint16_t *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
#if defined __AVX512F__
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif defined __AVX2__ && defined __FMA__
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#else
    return (vf)(__builtin_convertvector(h, vw) << 16);
#endif
}
