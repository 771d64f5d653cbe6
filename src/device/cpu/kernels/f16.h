/* Private to kernels/: vectors of half precision; tensor/half.h has it alone, of the same bits. */
#pragma once
#include "device/cpu/kernels/vec.h"
#include "tensor/half.h"

static inline vf f16_load(const uint16_t *p)
{
#if defined __AVX512F__
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)p));
#elif defined __AVX2__ && defined __FMA__ && defined __F16C__
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)p));
#else
    float lane[VL];
    for (int i = 0; i < VL; i++)
        lane[i] = f16_widen(p[i]);
    return vf_load(lane);
#endif
}

static inline void f16_store(uint16_t *p, vf v)
{
#if defined __AVX512F__
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined __AVX2__ && defined __FMA__ && defined __F16C__
    _mm_storeu_si128((__m128i_u *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
    float lane[VL];
    vf_store(lane, v);
    for (int i = 0; i < VL; i++)
        p[i] = f16_narrow(lane[i]);
#endif
}
