/* The product of tile.h, once for each kind of word: TILE_FN(part) names the functions,
 * TILE_TARGET is their instruction set and TILE_MAC(a, b, c) = a b + c.  No guard. */
/* One register tile, rows and vecs known to the compiler.  Local. */
static inline __attribute__((always_inline)) TILE_TARGET void
TILE_FN(_block)(const struct tile *t, int64_t i0, int64_t j0, const int rows, const int vecs)
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
                acc[i][j] = TILE_MAC(av, bv[j], acc[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            vf_store(c + i * t->ldc + j * VL, acc[i][j]);
}

static inline __attribute__((always_inline)) TILE_TARGET void
TILE_FN(_rows)(const struct tile *t, int64_t i0, const int rows)
{
    int64_t j = 0;
    for (; j + 2 * VL <= t->cols; j += 2 * VL)
        TILE_FN(_block)(t, i0, j, rows, 2);
    for (; j + VL <= t->cols; j += VL)
        TILE_FN(_block)(t, i0, j, rows, 1);
}

/* The whole product.  Local. */
static TILE_TARGET void TILE_FN()(const struct tile *t)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= t->rows; i += TILE_ROWS)
        TILE_FN(_rows)(t, i, TILE_ROWS);
    for (; i + 2 <= t->rows; i += 2)
        TILE_FN(_rows)(t, i, 2);
    for (; i < t->rows; i++)
        TILE_FN(_rows)(t, i, 1);
}

#undef TILE_FN
#undef TILE_TARGET
#undef TILE_MAC
