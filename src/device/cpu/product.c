/* Products as kernels want them: what a library cannot do is done around it.  For fp16, and for
 * bf16 without products of it, tiles of both sides are widened and multiplied in fp32, and rounded
 * once at the end. */
#include "device/cpu/cpu.h"

#include <stdlib.h>

/* TILE_N and TILE_M rows and columns of C at a time, sums over TILE_K at a time. */
enum { TILE_M = 512, TILE_N = 1024, TILE_K = 1024 };
enum { A_FLOATS = TILE_M * TILE_K, B_FLOATS = TILE_N * TILE_K, C_FLOATS = TILE_M * TILE_N };

struct widening {
    struct device *dev;
    const struct cpu_build *build;
    const struct gemm *g;
    const uint16_t *A, *B;
    void *C;
    float *a, *b, *c;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A tile, its rows behind each other, from rows that lie ld apart. */
static void widen(const struct widening *w, const struct cpu_rows *tile)
{
    struct cpu_rows r = *tile;
    r.to_ld = r.cols;
    r.f16 = w->g->f16;
    w->build->widen(&r, w->dev->n_threads);
}

/* Sum over K of the tile of C at (i0, j0): into c, or C itself where that is fp32. */
static void tile_product(const struct widening *w, struct gemm *t, int64_t i0, int64_t j0)
{
    const struct gemm *g = w->g;
    float *to = gemm_c_is_f32(g) ? (float *)w->C + i0 * g->ldc + j0 : w->c;
    for (int64_t k0 = 0; k0 < g->K; k0 += TILE_K) {
        t->K = smaller(TILE_K, g->K - k0);
        const uint16_t *a = w->A + (g->a_trans ? k0 * g->lda + i0 : i0 * g->lda + k0);
        const uint16_t *b = w->B + (g->b_trans ? j0 * g->ldb + k0 : k0 * g->ldb + j0);
        widen(w, &(struct cpu_rows){.from = a,
                                    .to = w->a,
                                    .rows = g->a_trans ? t->K : t->M,
                                    .cols = g->a_trans ? t->M : t->K,
                                    .from_ld = g->lda});
        widen(w, &(struct cpu_rows){.from = b,
                                    .to = w->b,
                                    .rows = g->b_trans ? t->N : t->K,
                                    .cols = g->b_trans ? t->K : t->N,
                                    .from_ld = g->ldb});
        t->lda = g->a_trans ? t->M : t->K;
        t->ldb = g->b_trans ? t->K : t->N;
        t->accumulate = g->accumulate || k0 > 0;
        w->dev->matmul->ops->run(w->dev->matmul->state, t, w->a, w->b, to);
    }
}

static void run_widened(const struct widening *w)
{
    const struct gemm *g = w->g;
    struct gemm t = {.a_trans = g->a_trans, .b_trans = g->b_trans};
    for (int64_t j0 = 0; j0 < g->N; j0 += TILE_N)
        for (int64_t i0 = 0; i0 < g->M; i0 += TILE_M) {
            t.M = smaller(TILE_M, g->M - i0);
            t.N = smaller(TILE_N, g->N - j0);
            t.ldc = gemm_c_is_f32(g) ? g->ldc : t.N;
            tile_product(w, &t, i0, j0);
            if (gemm_c_is_f32(g))
                continue;
            const uint16_t *bias = g->bias;
            struct cpu_rows r = {.from = w->c,
                                 .to = (uint16_t *)w->C + i0 * g->ldc + j0,
                                 .bias = bias ? bias + j0 : NULL,
                                 .f16 = g->f16,
                                 .rows = t.M,
                                 .cols = t.N,
                                 .from_ld = t.N,
                                 .to_ld = g->ldc};
            w->build->narrow(&r, w->dev->n_threads);
        }
}

static float *tiles(struct matmul *m)
{
    if (!m->tiles) {
        m->tile_bytes = (size_t)(A_FLOATS + B_FLOATS + C_FLOATS) * sizeof(float);
        if (posix_memalign(&m->tiles, 4096, m->tile_bytes) != 0)
            FATAL("out of memory for %zu bytes of widened tiles", m->tile_bytes);
    }
    return m->tiles;
}

void cpu_product(struct device *dev, const struct gemm *g, const void *A, const void *B, void *C)
{
    struct matmul *m = dev->matmul;
    const struct cpu_build *build = cpu_build(dev->isa);
    REQUIRE(!g->bias || !(g->accumulate || g->wide_c));
    if (g->f16 || (g->bf16 && !device_native_bf16(dev))) {
        float *a = tiles(m), *b = a + A_FLOATS, *c = b + B_FLOATS;
        struct widening w = {dev, build, g, A, B, C, a, b, c};
        run_widened(&w);
        return;
    }
    m->ops->run(m->state, g, A, B, C);
    if (g->bias && !m->ops->bias)
        build->add_rows(C, g->ldc, g->bias, 0, g->M, g->N, dev->n_threads);
}
