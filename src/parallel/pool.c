/* First fit over a sorted list of what is taken. */
#include "parallel/pool.h"

#include "base/arena.h"
#include <stdlib.h>
#include <string.h>

void pool_init(struct pool *p, int most, size_t n_bytes)
{
    *p = (struct pool){.most = most, .n_bytes = n_bytes};
    p->span = calloc((size_t)most, sizeof *p->span);
    if (!p->span)
        FATAL("out of memory for a pool of %d spans", most);
}

void pool_clear(struct pool *p)
{
    free(p->span);
    *p = (struct pool){0};
}

size_t pool_take(struct pool *p, size_t n_bytes)
{
    size_t need = (n_bytes + STACK_ALIGN - 1) & ~(size_t)(STACK_ALIGN - 1), begin = 0;
    int at = 0;
    need = need > 0 ? need : STACK_ALIGN; /* every span has a place of its own */
    REQUIRE(p->n < p->most);
    while (at < p->n && p->span[at].begin - begin < need)
        begin = p->span[at++].end;
    if (need > p->n_bytes || begin > p->n_bytes - need)
        FATAL("pool of %zu bytes is full: %zu wanted at %zu", p->n_bytes, n_bytes, begin);
    memmove(p->span + at + 1, p->span + at, (size_t)(p->n - at) * sizeof *p->span);
    p->span[at] = (struct pool_span){begin, begin + need};
    p->n++;
    p->peak = begin + need > p->peak ? begin + need : p->peak;
    return begin;
}

void pool_give(struct pool *p, size_t begin)
{
    int at = 0;
    while (at < p->n && p->span[at].begin != begin)
        at++;
    REQUIRE(at < p->n);
    memmove(p->span + at, p->span + at + 1, (size_t)(p->n - at - 1) * sizeof *p->span);
    p->n--;
}
