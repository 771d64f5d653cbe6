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

/* Kernels that take scratch say so. */
static void take_scratch(struct stream *s, const struct linear *l)
{
    size_t mark = stack_mark(&s->scratch);
    (void)stack_push(&s->scratch, s->k->linear_scratch(s->dev, l));
    stack_release(&s->scratch, mark);
}

static void dry_linear_forward(struct stream *s, const struct linear *l, void *y, void *pre,
                               const void *x, const void *w, const void *b)
{
    take_scratch(s, l);
}

static void dry_linear_backward(struct stream *s, const struct linear *l, void *dx, float *dw,
                                float *db, void *dy, const void *x, const void *w, const void *pre)
{
    take_scratch(s, l);
}
#pragma GCC diagnostic pop

void kernels_make_null(struct kernels *null, const struct kernels *full)
{
#define KERNEL(name, args) null->name = null_##name;
#define KERNEL_SIZE(name, args) null->name = full->name;
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
    null->linear_forward = dry_linear_forward;
    null->linear_backward = dry_linear_backward;
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
