/* Private to kernels/: vectors of bfloat16; tensor/half.h has it alone. */
#pragma once
#include "device/cpu/kernels/vec.h"
#include "tensor/half.h"

typedef uint16_t vh __attribute__((vector_size(2 * VL)));
typedef uint32_t vw __attribute__((vector_size(4 * VL)));

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
