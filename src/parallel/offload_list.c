/* The ways to read and write arrays on disk of this build, best first. */
#include "parallel/offload_impl.h"

#include <stddef.h>

const struct offload_io_ops *const offload_list[] = {
#ifdef HAVE_URING
    &offload_uring_ops,
#endif
    &offload_thread_ops,
    NULL,
};
