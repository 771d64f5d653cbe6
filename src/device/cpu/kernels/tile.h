/* Private to kernels/: small products in registers, C (rows, cols) = A · B, where B and C are
 * row-major with cols a multiple of 16 and A may lie either way round.  For attention, whose
 * matrices are small and masked; the large products go through the matmul table.
 *
 * An element of A and B is a 32-bit word: a float in tile_product(); in tile_pairs() two bf16 that
 * are neighbours along K, the first in the lower half, which AVX512_BF16 multiplies at once. */
#pragma once
#include "device/cpu/kernels/vec.h"

struct tile {
    const float *a; /* element (i, k) at a[i a_row + k a_k] */
    int64_t a_row, a_k;
    const float *b; /* (K, cols), rows of ldb */
    int64_t ldb;
    float *c; /* (rows, cols), rows of ldc */
    int64_t ldc;
    int64_t rows, cols, K;
    bool add;
};

enum { TILE_ROWS = VL == 16 ? 8 : 4 };

#define TILE_FN(part) tile_product##part
#define TILE_TARGET
#define TILE_MAC vf_fma
#include "device/cpu/kernels/tile_body.h"

/* Built wherever a compiler can, called only on a machine that has the instruction. */
#if defined __AVX512F__ && (!defined __clang__ || __clang_major__ >= 10)
#define HAVE_TILE_PAIRS 1
#define TILE_FN(part) tile_pairs##part
#define PAIRS_TARGET __attribute__((target("avx512bf16")))
#define TILE_TARGET PAIRS_TARGET
#define TILE_MAC(a, b, c) _mm512_dpbf16_ps((c), (__m512bh)(a), (__m512bh)(b))
#include "device/cpu/kernels/tile_body.h"

/* Two rows of n floats, a multiple of 16, in bf16: each for itself in word form (row0, row1: n / 2
 * words), and interleaved (pairs: n words).  Tiny numbers become zero, as in the products. */
static inline PAIRS_TARGET void tile_pack(float *row0, float *row1, float *pairs, const float *x0,
                                          const float *x1, int64_t n)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int64_t u = 0; u < n; u += VL) {
        __m512i h = (__m512i)_mm512_cvtne2ps_pbh(vf_load(x1 + u), vf_load(x0 + u));
        _mm256_storeu_si256((void *)(row0 + u / 2), _mm512_castsi512_si256(h));
        _mm256_storeu_si256((void *)(row1 + u / 2), _mm512_extracti64x4_epi64(h, 1));
        _mm512_storeu_si512(pairs + u, _mm512_permutexvar_epi16(order, h));
    }
}
#else
#define HAVE_TILE_PAIRS 0
#endif
