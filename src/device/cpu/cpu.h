/* Private to device/cpu/: what one instruction set's build of cpu/kernels/ offers. */
#pragma once
#include "device/device.h"
#include "device/matmul.h"

/* The last three have one build of our kernels: they differ in what a library multiplies bf16
 * with, and so in the bits of its sums. */
enum cpu_isa {
    CPU_ISA_BASE,
    CPU_ISA_AVX2,
    CPU_ISA_AVX512,
    CPU_ISA_AVX512_BF16,
    CPU_ISA_AMX,
};

/* Rows between bf16, or fp16, and fp32. */
struct cpu_rows {
    const void *from;
    void *to;
    const void *bias; /* narrow: added first, of the narrow dtype, or NULL */
    bool f16;         /* else bf16 */
    int64_t rows, cols, from_ld, to_ld;
};

/* A side of a product, (K, N): element (k, n) lies at k ld + n, turned at n ld + k.  Its words are
 * fp32, widened where it is of bf16 or fp16, or two bf16 that are neighbours along K, the first in
 * the lower half. */
struct cpu_side {
    const void *from;
    void *to;
    enum dtype dtype; /* of from */
    int64_t K, N, ld;
    bool turned;
    int pair;      /* elements of a word: 1, or 2 of bf16 */
    int64_t rows;  /* words of a column in to; those behind K are zero */
    int64_t width; /* pack_panels: columns of a panel, a multiple of 16; those behind N are zero */
};

struct cpu_build {
    const struct kernels *table[DTYPE_COUNT]; /* by compute dtype; NULL: none */
    /* The plain blocked product.  work: gemm_work(n_threads) bytes, aligned to 64. */
    void (*gemm)(const struct gemm *g, const float *A, const float *B, float *C, void *work,
                 int n_threads);
    size_t (*gemm_work)(int n_threads);
    void (*widen)(const struct cpu_rows *r, int n_threads);
    void (*narrow)(const struct cpu_rows *r, int n_threads);
    /* y += x, rows ldy and ldx apart; ldx 0 adds one row, a bias, to all. */
    void (*add_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols,
                     int n_threads);
    /* to = panels of columns, one behind the other: word (w, n) is n % width of row w. */
    void (*pack_panels)(const struct cpu_side *s, int n_threads);
    /* to = (N, rows) words, of a side that is not turned and has whole words. */
    void (*pack_turned)(const struct cpu_side *s, int n_threads);
};

/* The build for an instruction set; NULL if this program has none.  Local. */
const struct cpu_build *cpu_build(int isa);

/* Pages of zeros, huge ones where there are; NULL when there is no memory.  Local. */
void *cpu_alloc(size_t n_bytes);
void cpu_free(void *p, size_t n_bytes);

/* A product by the device's matmul table, with what that cannot do itself: bias, bf16, fp16.
 * room: cpu_product_room() bytes at a multiple of 64, where sides are widened.  Local. */
void cpu_product(struct device *dev, const struct gemm *g, const void *A, const void *B, void *C,
                 void *room);
size_t cpu_product_room(const struct device *dev, const struct gemm *g); /* Local. */

/* The matrix products that were built in, best first, NULL at the end. */
extern const struct matmul_ops *const matmul_list[];
