/* Private to device/cpu/: what one instruction set's build of cpu/kernels/ offers. */
#pragma once
#include "device/device.h"
#include "device/matmul.h"

enum cpu_isa { CPU_ISA_BASE, CPU_ISA_AVX2, CPU_ISA_AVX512 };

struct cpu_build {
    const struct kernels *f32;
    /* The plain blocked product.  work: gemm_work(n_threads) bytes, aligned to 64. */
    void (*gemm)(const struct gemm *g, const float *A, const float *B, float *C, void *work,
                 int n_threads);
    size_t (*gemm_work)(int n_threads);
};

/* The build for an instruction set; NULL if this program has none.  Local. */
const struct cpu_build *cpu_build(int isa);

/* The matrix products that were built in, best first, NULL at the end. */
extern const struct matmul_ops *const matmul_list[];
