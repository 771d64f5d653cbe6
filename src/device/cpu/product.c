/* Products as kernels want them: what a library cannot do is done around it.  For fp16, and for
 * bf16 without products of it, tiles of both sides are widened and multiplied in fp32, and rounded
 * once at the end. */
#include "device/cpu/cpu.h"

/* A tile of a side, and of a C that is rounded, in floats; columns of A summed at a time.  Copying
 * B for each tile, as libraries do, costs little where a cache holds it: then so few rows that the
 * rest stays in one as well, but enough for all threads. */
enum { SIDE = 4 << 20, SUMS = 1 << 20, TILE_K = 4096 };
enum { NEAR_B = 128 << 10, NEAR = 192 << 10, NEAR_ROWS = 192 };

struct tiles {
    int64_t M, N, K; /* of a tile, but for the last of each */
    size_t a, b, c;  /* floats; none of C where the product writes that itself */
};

struct widening {
    struct device *dev;
    const struct cpu_build *build;
    const struct gemm *g;
    const uint16_t *A, *B;
    void *C;
    struct tiles tile;
    float *a, *b, *c;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* n in the least number of parts of at most `most`, each as large as the others. */
static int64_t part_of(int64_t n, int64_t most)
{
    int64_t n_parts = (n + most - 1) / most;
    return (n + n_parts - 1) / n_parts;
}

static size_t whole_lines(int64_t n_floats)
{
    return (size_t)((n_floats + 15) / 16 * 16);
}

/* As few tiles as there is room for, so that a side is widened once where it can be.  By the shape
 * alone: where K is cut decides on bits. */
static struct tiles tiles_of(const struct gemm *g)
{
    bool rounded = !gemm_c_is_f32(g);
    struct tiles t = {.K = part_of(g->K, TILE_K)};
    int64_t most_rows = rounded ? smaller(SIDE / t.K, SUMS / 64) : SIDE / t.K;
    int64_t near_rows = NEAR / (t.K + (rounded ? g->N : 0));
    if (g->N * g->K <= NEAR_B && !g->a_trans)
        most_rows = smaller(most_rows, near_rows > NEAR_ROWS ? near_rows : NEAR_ROWS);
    t.M = part_of(g->M, most_rows);
    t.N = part_of(g->N, rounded ? smaller(SIDE / t.K, SUMS / t.M) : SIDE / t.K);
    t.a = whole_lines(t.M * t.K);
    t.b = whole_lines(t.N * t.K);
    t.c = rounded ? whole_lines(t.M * t.N) : 0;
    return t;
}

/* A tile (rows, cols), its rows behind each other, from rows that lie ld apart. */
static void widen(const struct widening *w, float *to, const uint16_t *from, int64_t ld,
                  int64_t rows, int64_t cols)
{
    const struct cpu_rows r = {.from = from,
                               .to = to,
                               .f16 = w->g->f16,
                               .rows = rows,
                               .cols = cols,
                               .from_ld = ld,
                               .to_ld = cols};
    w->build->widen(&r, w->dev->n_threads);
}

static void widen_a(const struct widening *w, const struct gemm *t, int64_t i0, int64_t k0)
{
    const struct gemm *g = w->g;
    if (g->a_trans)
        widen(w, w->a, w->A + k0 * g->lda + i0, g->lda, t->K, t->M);
    else
        widen(w, w->a, w->A + i0 * g->lda + k0, g->lda, t->M, t->K);
}

/* Whether a turned B is turned back, where many rows use it: that takes a few per cent of the
 * product, which is faster by 1-16 % then.  Turning A back gains nothing. */
static bool turns_b(const struct gemm *g)
{
    enum { MANY = 256 };
    return g->b_trans && g->M >= MANY;
}

static void widen_b(const struct widening *w, const struct gemm *t, int64_t j0, int64_t k0)
{
    const struct gemm *g = w->g;
    const uint16_t *from = w->B + (g->b_trans ? j0 * g->ldb + k0 : k0 * g->ldb + j0);
    if (t->b_trans == g->b_trans) {
        widen(w, w->b, from, g->ldb, t->b_trans ? t->N : t->K, t->b_trans ? t->K : t->N);
        return;
    }
    const struct cpu_side s = {.from = from,
                               .to = w->b,
                               .dtype = g->f16 ? DTYPE_F16 : DTYPE_BF16,
                               .K = t->N,
                               .N = t->K,
                               .ld = g->ldb,
                               .pair = 1,
                               .rows = t->N};
    w->build->pack_turned(&s, w->dev->n_threads);
}

/* Sum over K of the tile of C at (i0, j0): into c, or C itself where that is fp32.  What is widened
 * already from the tile before stays. */
static void sum_tile(const struct widening *w, struct gemm *t, int64_t i0, int64_t j0)
{
    const struct gemm *g = w->g;
    float *to = gemm_c_is_f32(g) ? (float *)w->C + i0 * g->ldc + j0 : w->c;
    for (int64_t k0 = 0; k0 < g->K; k0 += w->tile.K) {
        t->K = smaller(w->tile.K, g->K - k0);
        if (j0 == 0 || t->K < g->K)
            widen_a(w, t, i0, k0);
        if (i0 == 0 || t->K < g->K || t->N < g->N)
            widen_b(w, t, j0, k0);
        t->lda = g->a_trans ? t->M : t->K;
        t->ldb = t->b_trans ? t->K : t->N;
        t->accumulate = g->accumulate || k0 > 0;
        w->dev->matmul->ops->run(w->dev->matmul->state, t, w->a, w->b, to);
    }
}

static void round_tile(const struct widening *w, const struct gemm *t, int64_t i0, int64_t j0)
{
    const struct gemm *g = w->g;
    const uint16_t *bias = g->bias;
    const struct cpu_rows r = {.from = w->c,
                               .to = (uint16_t *)w->C + i0 * g->ldc + j0,
                               .bias = bias ? bias + j0 : NULL,
                               .f16 = g->f16,
                               .rows = t->M,
                               .cols = t->N,
                               .from_ld = t->N,
                               .to_ld = g->ldc};
    w->build->narrow(&r, w->dev->n_threads);
}

static void run_widened(const struct widening *w)
{
    const struct gemm *g = w->g;
    struct gemm t = {.a_trans = g->a_trans, .b_trans = g->b_trans && !turns_b(g)};
    for (int64_t i0 = 0; i0 < g->M; i0 += w->tile.M)
        for (int64_t j0 = 0; j0 < g->N; j0 += w->tile.N) {
            t.M = smaller(w->tile.M, g->M - i0);
            t.N = smaller(w->tile.N, g->N - j0);
            t.ldc = gemm_c_is_f32(g) ? g->ldc : t.N;
            sum_tile(w, &t, i0, j0);
            if (!gemm_c_is_f32(g))
                round_tile(w, &t, i0, j0);
        }
}

/* At least what tiles_of() says, of this and of any smaller product, so that a plan may ask for the
 * largest alone: with fewer rows tiles are wider. */
size_t cpu_product_room(const struct device *dev, const struct gemm *g)
{
    if (!g->f16 && (!g->bf16 || device_native_bf16(dev)))
        return 0;
    size_t n_floats =
        whole_lines(smaller(g->M * g->K, SIDE)) + whole_lines(smaller(g->N * g->K, SIDE));
    if (!gemm_c_is_f32(g))
        n_floats += whole_lines(smaller(g->M * g->N, SUMS));
    return n_floats * sizeof(float);
}

void cpu_product(struct device *dev, const struct gemm *g, const void *A, const void *B, void *C,
                 void *room)
{
    struct matmul *m = dev->matmul;
    const struct cpu_build *build = cpu_build(dev->isa);
    REQUIRE(!g->bias || !(g->accumulate || g->wide_c));
    size_t n_bytes = cpu_product_room(dev, g);
    if (n_bytes > 0) {
        struct tiles t = tiles_of(g);
        REQUIRE((t.a + t.b + t.c) * sizeof(float) <= n_bytes);
        float *a = room, *b = a + t.a, *c = b + t.b;
        run_widened(&(struct widening){dev, build, g, A, B, C, t, a, b, c});
        return;
    }
    m->ops->run(m->state, g, A, B, C);
    if (g->bias && !m->ops->bias)
        build->add_rows(C, g->ldc, g->bias, 0, g->M, g->N, dev->n_threads);
}
