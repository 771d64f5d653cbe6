/* Our own product as a matmul table: the fallback of a build without libraries. */
#include "device/cpu/cpu.h"

#include <stdlib.h>

struct plain {
    const struct cpu_build *build; /* borrowed */
    int n_threads;
    void *work; /* owned */
};

static int plain_create(int n_threads, int isa, void **state)
{
    const struct cpu_build *build = cpu_build(isa);
    struct plain *p = calloc(1, sizeof *p);
    void *work = NULL;
    if (!p || posix_memalign(&work, 4096, build->gemm_work(n_threads)) != 0) {
        free(p);
        FAIL(ERR_RESOURCE, "out of memory for the matrix product's buffers");
    }
    *p = (struct plain){build, n_threads, work};
    *state = p;
    return ERR_OK;
}

static void plain_run(void *state, const struct gemm *g, const void *A, const void *B, void *C)
{
    struct plain *p = state;
    p->build->gemm(g, A, B, C, p->work, p->n_threads);
}

static void plain_destroy(void **state)
{
    struct plain *p = *state;
    if (p)
        free(p->work);
    free(p);
    *state = NULL;
}

const struct matmul_ops matmul_plain_ops = {
    .name = "plain",
    .create = plain_create,
    .run = plain_run,
    .destroy = plain_destroy,
};
