/* One instruction set's kernels of one compute dtype as a table. */
#include "device/cpu/kernels/elem.h"

extern const struct kernels FN(kernels);
const struct kernels FN(kernels) = {
#define KERNEL(name, args) .name = FN(name),
#define KERNEL_SIZE(name, args) .name = FN(name),
#define KERNEL_F32(name, args) .name = ISA_FN(name),
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
#undef KERNEL_F32
};
