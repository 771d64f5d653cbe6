/* One instruction set's kernels as a table. */
#include "device/cpu/kernels/isa.h"

static const struct kernels f32_kernels = {
#define KERNEL(name, args) .name = FN(name),
#define KERNEL_SIZE(name, args) .name = FN(name),
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
};

extern const struct cpu_build FN(cpu_build);
const struct cpu_build FN(cpu_build) = {
    .f32 = &f32_kernels,
    .gemm = FN(gemm),
    .gemm_work = FN(gemm_work),
};
