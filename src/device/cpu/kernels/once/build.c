/* What one instruction set's build offers: a table for each compute dtype, and its own product. */
#include "device/cpu/kernels/once/once.h"

extern const struct kernels ISA_PASTE(ISA_FN(kernels), f32), ISA_PASTE(ISA_FN(kernels), bf16),
    ISA_PASTE(ISA_FN(kernels), f16);

extern const struct cpu_build ISA_FN(cpu_build);
const struct cpu_build ISA_FN(cpu_build) = {
    .table = {[DTYPE_F32] = &ISA_PASTE(ISA_FN(kernels), f32),
              [DTYPE_BF16] = &ISA_PASTE(ISA_FN(kernels), bf16),
              [DTYPE_F16] = &ISA_PASTE(ISA_FN(kernels), f16)},
    .gemm = ISA_FN(gemm),
    .gemm_work = ISA_FN(gemm_work),
    .widen = ISA_FN(widen),
    .narrow = ISA_FN(narrow),
    .add_rows = ISA_FN(add_rows),
    .pack_panels = ISA_FN(pack_panels),
    .pack_turned = ISA_FN(pack_turned),
};
