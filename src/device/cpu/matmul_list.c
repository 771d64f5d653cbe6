/* The matrix products of this build, best first. */
#include "device/cpu/cpu.h"

const struct matmul_ops *const matmul_list[] = {
#ifdef HAVE_ONEDNN
    &matmul_onednn_ops,
#endif
#ifdef HAVE_CBLAS
    &matmul_cblas_ops,
#endif
    &matmul_plain_ops,
    NULL,
};
