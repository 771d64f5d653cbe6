/* Matrix products by any CBLAS. */
#ifdef HAVE_CBLAS
#include "device/cpu/cpu.h"

#include <cblas.h>
#include <limits.h>
#include <stdlib.h>

/* OpenBLAS has its own thread count; another CBLAS has no such function */
void openblas_set_num_threads(int n_threads) __attribute__((weak));

static int cblas_create(int n_threads, int isa, void **state)
{
    (void)isa; /* CBLAS has no way to be told */
    int *n = malloc(sizeof *n);
    if (!n)
        FAIL(ERR_RESOURCE, "out of memory for the matrix product's state");
    *n = n_threads;
    *state = n;
    return ERR_OK;
}

static void cblas_run(void *state, const struct gemm *g, const void *A, const void *B, void *C)
{
    REQUIRE(g->M <= INT_MAX && g->N <= INT_MAX && g->K <= INT_MAX);
    REQUIRE(g->lda <= INT_MAX && g->ldb <= INT_MAX && g->ldc <= INT_MAX);
    const int *n_threads = state;
    if (openblas_set_num_threads)
        openblas_set_num_threads(*n_threads);
    cblas_sgemm(CblasRowMajor, g->a_trans ? CblasTrans : CblasNoTrans,
                g->b_trans ? CblasTrans : CblasNoTrans, (int)g->M, (int)g->N, (int)g->K, 1.0f, A,
                (int)g->lda, B, (int)g->ldb, g->accumulate ? 1.0f : 0.0f, C, (int)g->ldc);
}

static void cblas_destroy(void **state)
{
    free(*state);
    *state = NULL;
}

const struct matmul_ops matmul_cblas_ops = {
    .name = "cblas",
    .create = cblas_create,
    .run = cblas_run,
    .destroy = cblas_destroy,
};
#else
typedef int matmul_cblas_is_not_built; /* a file may not be empty */
#endif
