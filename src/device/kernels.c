/* What can be said about kernel tables without knowing a device: the one that does nothing, and
 * whether one is complete. */
#include "device/kernels.h"

/* the list's arguments are named for its reader; here nothing uses them */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define KERNEL(name, args)                                                                         \
    static void null_##name args {}
#define KERNEL_SIZE(name, args)
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
#pragma GCC diagnostic pop

void kernels_make_null(struct kernels *null, const struct kernels *full)
{
#define KERNEL(name, args) null->name = null_##name;
#define KERNEL_SIZE(name, args) null->name = full->name;
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
}

const char *kernels_missing(const struct kernels *k)
{
#define KERNEL(name, args)                                                                         \
    if (!k->name)                                                                                  \
        return #name;
#define KERNEL_SIZE(name, args) KERNEL(name, args)
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
    return NULL;
}
