/* Private to device/: matrix products as a table of three functions, so that a build needs no
 * particular library.  C (M, N) = op(A) · op(B) (+ C if accumulate) (+ bias), row-major with
 * leading dimensions; M, N, K at least 1.  One thread at a time; inside it uses the device's
 * threads. */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct gemm {
    int64_t M, N, K;
    bool a_trans, b_trans; /* A is stored (K, M); B is stored (N, K) */
    bool accumulate;
    int64_t lda, ldb, ldc;
    bool bf16;        /* A, B and bias are bf16, and C unless gemm_c_is_f32(); else all are fp32 */
    bool f16;         /* the same in fp16: for cpu_product() alone, no run() takes it */
    bool wide_c;      /* C is fp32, whatever A and B are; accumulate implies it */
    const void *bias; /* (N) or NULL; never with accumulate */
};

static inline bool gemm_c_is_f32(const struct gemm *g)
{
    return (!g->bf16 && !g->f16) || g->wide_c || g->accumulate;
}

struct matmul_ops {
    const char *name;
    /* ERR_RESOURCE with the library's words if it does not work here.  Local. */
    int (*create)(int n_threads, int isa, void **state);
    void (*run)(void *state, const struct gemm *g, const void *A, const void *B, void *C);
    void (*destroy)(void **state);
    bool (*bf16)(const void *state); /* run() takes bf16; NULL: it does not */
    bool bias;                       /* run() adds it; else its caller does */
};

extern const struct matmul_ops matmul_plain_ops;
#ifdef HAVE_ONEDNN
extern const struct matmul_ops matmul_onednn_ops;
#endif
#ifdef HAVE_CBLAS
extern const struct matmul_ops matmul_cblas_ops;
#endif

struct matmul {
    const struct matmul_ops *ops;
    void *state;
};
