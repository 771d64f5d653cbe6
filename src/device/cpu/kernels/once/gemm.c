/* The plain matrix product: blocks for the caches, panels packed for one register tile.  Every
 * element of C adds its K products in the same order whatever M, N and the number of threads. */
#include "device/cpu/kernels/once/once.h"
#include "device/cpu/kernels/vec.h"

enum {
    MR = VL == 16  ? 12
         : VL == 8 ? 6
                   : 4,
    NR = 2 * VL,
    KC = 256,
    MC = 96, /* a multiple of every MR */
    NC = 1024
};

struct pack {
    float *a; /* this thread's (MC, KC), in panels of MR rows: element (k, i) at k MR + i */
    float *b; /* shared (KC, NC), in panels of NR columns */
};

size_t ISA_FN(gemm_work)(int n_threads)
{
    return ((size_t)n_threads * MC * KC + (size_t)KC * NC) * sizeof(float);
}

static void pack_a(float *to, const struct gemm *g, const float *A, int64_t i0, int64_t rows,
                   int64_t k0, int64_t K)
{
    int64_t step_i = g->a_trans ? 1 : g->lda, step_k = g->a_trans ? g->lda : 1;
    for (int64_t p = 0; p < rows; p += MR) {
        int64_t m = min_i64(MR, rows - p);
        const float *from = A + (i0 + p) * step_i + k0 * step_k;
        for (int64_t k = 0; k < K; k++, to += MR) {
            for (int64_t i = 0; i < m; i++)
                to[i] = from[i * step_i + k * step_k];
            for (int64_t i = m; i < MR; i++)
                to[i] = 0.0f;
        }
    }
}

/* One panel of NR columns from j0 on. */
static void pack_b(float *to, const struct gemm *g, const float *B, int64_t j0, int64_t cols,
                   int64_t k0, int64_t K)
{
    int64_t step_j = g->b_trans ? g->ldb : 1, step_k = g->b_trans ? 1 : g->ldb;
    int64_t n = min_i64(NR, cols);
    const float *from = B + j0 * step_j + k0 * step_k;
    for (int64_t k = 0; k < K; k++, to += NR) {
        for (int64_t j = 0; j < n; j++)
            to[j] = from[j * step_j + k * step_k];
        for (int64_t j = n; j < NR; j++)
            to[j] = 0.0f;
    }
}

/* c (MR, NR) = or += the product of one panel each. */
static void register_tile(const float *a, const float *b, int64_t K, float *c, int64_t ldc,
                          bool add)
{
    vf acc[MR][2];
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++)
        acc[i][0] = acc[i][1] = vf_set1(0.0f);
    for (int64_t k = 0; k < K; k++, a += MR, b += NR) {
        vf b0 = vf_load(b), b1 = vf_load(b + VL);
#pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            vf av = vf_set1(a[i]);
            acc[i][0] = vf_fma(av, b0, acc[i][0]);
            acc[i][1] = vf_fma(av, b1, acc[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        float *to = c + i * ldc;
        if (add) {
            acc[i][0] = vf_load(to) + acc[i][0];
            acc[i][1] = vf_load(to + VL) + acc[i][1];
        }
        vf_store(to, acc[i][0]);
        vf_store(to + VL, acc[i][1]);
    }
}

/* A tile at the border of C goes through a whole one. */
static void border_tile(const float *a, const float *b, int64_t K, float *c, const struct gemm *g,
                        int64_t rows, int64_t cols, bool add)
{
    float whole[MR * NR];
    register_tile(a, b, K, whole, NR, false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            c[i * g->ldc + j] = add ? c[i * g->ldc + j] + whole[i * NR + j] : whole[i * NR + j];
}

/* Rows i0 … i0 + rows - 1 of C, columns j0 … j0 + cols - 1, over one block of K. */
static void row_block(const struct gemm *g, const struct pack *p, float *C, int64_t i0,
                      int64_t rows, int64_t j0, int64_t cols, int64_t K, bool add)
{
    for (int64_t j = 0; j < cols; j += NR)
        for (int64_t i = 0; i < rows; i += MR) {
            const float *a = p->a + i * K, *b = p->b + j * K;
            float *c = C + (i0 + i) * g->ldc + j0 + j;
            if (i + MR <= rows && j + NR <= cols)
                register_tile(a, b, K, c, g->ldc, add);
            else
                border_tile(a, b, K, c, g, min_i64(MR, rows - i), min_i64(NR, cols - j), add);
        }
}

void ISA_FN(gemm)(const struct gemm *g, const float *A, const float *B, float *C, void *work,
                  int n_threads)
{
    float *b = work;
    int n = (double)g->M * (double)g->N * (double)g->K < 1e6 ? 1 : n_threads;
    /* fewer rows a block where there would be less than one block a thread */
    int64_t mc = min_i64(MC, round_up((g->M + n - 1) / n, MR));
    for (int64_t j0 = 0; j0 < g->N; j0 += NC)
        for (int64_t k0 = 0; k0 < g->K; k0 += KC) {
            int64_t cols = min_i64(NC, g->N - j0), K = min_i64(KC, g->K - k0);
#pragma omp parallel for schedule(static) num_threads(n)
            for (int64_t j = 0; j < cols; j += NR)
                pack_b(b + j * K, g, B, j0 + j, cols - j, k0, K);
#pragma omp parallel for schedule(static, 1) num_threads(n)
            for (int t = 0; t < n; t++) {
                struct pack p = {b + (int64_t)KC * NC + (int64_t)t * MC * KC, b};
                for (int64_t i0 = t * mc; i0 < g->M; i0 += n * mc) {
                    int64_t rows = min_i64(mc, g->M - i0);
                    pack_a(p.a, g, A, i0, rows, k0, K);
                    row_block(g, &p, C, i0, rows, j0, cols, K, g->accumulate || k0 > 0);
                }
            }
        }
}
