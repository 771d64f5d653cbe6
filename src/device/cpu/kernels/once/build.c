/* What one instruction set's build offers: a table for each compute dtype, and its own product. */
#include "device/cpu/kernels/once/once.h"

extern const struct kernels ISA_PASTE(ISA_FN(kernels), f32), ISA_PASTE(ISA_FN(kernels), bf16);

extern const struct cpu_build ISA_FN(cpu_build);
const struct cpu_build ISA_FN(cpu_build) = {
    .f32 = &ISA_PASTE(ISA_FN(kernels), f32),
    .bf16 = &ISA_PASTE(ISA_FN(kernels), bf16),
    .gemm = ISA_FN(gemm),
    .gemm_work = ISA_FN(gemm_work),
    .widen = ISA_FN(widen),
    .narrow = ISA_FN(narrow),
    .add_bias = ISA_FN(add_bias),
};
