/* Private to kernels/: small products in registers, C (rows, cols) = A · B, where B and C are
 * row-major with cols a multiple of 16 and A may lie either way round.  For attention, whose
 * matrices are small and masked; the large products go through the matmul table. */
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

/* One register tile, rows and vecs known to the compiler.  Local. */
static inline __attribute__((always_inline)) void
tile_block(const struct tile *t, int64_t i0, int64_t j0, const int rows, const int vecs)
{
    vf acc[TILE_ROWS][2];
    const float *a = t->a + i0 * t->a_row, *b = t->b + j0;
    float *c = t->c + i0 * t->ldc + j0;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            if (t->add)
                acc[i][j] = vf_load(c + i * t->ldc + j * VL);
            else
                acc[i][j] = vf_set1(0.0f);
    for (int64_t k = 0; k < t->K; k++) {
        vf bv[2];
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            bv[j] = vf_load(b + k * t->ldb + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vf av = vf_set1(a[i * t->a_row + k * t->a_k]);
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++)
                acc[i][j] = vf_fma(av, bv[j], acc[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            vf_store(c + i * t->ldc + j * VL, acc[i][j]);
}

static inline __attribute__((always_inline)) void tile_rows(const struct tile *t, int64_t i0,
                                                            const int rows)
{
    int64_t j = 0;
    for (; j + 2 * VL <= t->cols; j += 2 * VL)
        tile_block(t, i0, j, rows, 2);
    for (; j + VL <= t->cols; j += VL)
        tile_block(t, i0, j, rows, 1);
}

/* The whole product.  Local. */
static inline void tile_product(const struct tile *t)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= t->rows; i += TILE_ROWS)
        tile_rows(t, i, TILE_ROWS);
    for (; i + 2 <= t->rows; i += 2)
        tile_rows(t, i, 2);
    for (; i < t->rows; i++)
        tile_rows(t, i, 1);
}
