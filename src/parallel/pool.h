/* A block of memory that is cut as units' buffers come and go in an order that is no stack's:
 * first fit.  It hands out offsets, so that a plan can count what a run will need, and all ranks
 * that make the same calls get the same places. */
#pragma once
#include <stddef.h>

struct pool_span {
    size_t begin, end;
};

struct pool {
    struct pool_span *span; /* owned: what is taken, by place */
    int n, most;
    size_t n_bytes, peak;
};

/* At most so many spans at once; pool_take() beyond n_bytes is fatal: the plan was wrong.
 * Local. */
void pool_init(struct pool *p, int most, size_t n_bytes);
void pool_clear(struct pool *p);
size_t pool_take(struct pool *p, size_t n_bytes); /* a multiple of STACK_ALIGN.  Local. */
void pool_give(struct pool *p, size_t begin);     /* what pool_take() returned.  Local. */
