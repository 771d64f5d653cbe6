/* Private to kernels/.  Each .c here is compiled once an instruction set, with -DKERNEL_ISA=base,
 * avx2 or avx512: FN gives every build its own names, and no two builds share code. */
#pragma once
#include "device/cpu/cpu.h"

#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa) ISA_PASTE_(name, isa)
#define FN(name) ISA_PASTE(name, KERNEL_ISA)

#define KERNEL(name, args) void FN(name) args;
#define KERNEL_SIZE(name, args) size_t FN(name) args;
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE

void FN(gemm)(const struct gemm *g, const float *A, const float *B, float *C, void *work,
              int n_threads);
size_t FN(gemm_work)(int n_threads);

/* Threads for work on n_elem values: a parallel region costs as much as some 30,000 of them. */
static inline int threads_for(const struct stream *s, int64_t n_elem)
{
    return n_elem >= 32768 ? s->dev->n_threads : 1;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}
