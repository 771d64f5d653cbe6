/* Private to node*.c: the segment and its counters. */
#pragma once
#include "comm/comm_impl.h"
#include "comm/node.h"

#include <stdatomic.h>

/* A number that one rank raises and the others wait for; it may wrap around. */
struct counter {
    _Atomic uint32_t value, sleepers;
};

/* How far a rank is: in its collectives, and in what it has read. */
struct progress {
    struct counter tasks;
    char apart[64 - sizeof(struct counter)]; /* a cache line each: two threads raise them */
    struct counter marks;
    char apart_too[64 - sizeof(struct counter)];
};

struct node_memory {
    int fd;
    int rank, size; /* in the node */
    size_t head_bytes, shared_bytes, own_bytes, n_bytes;
    char *base;                /* token, counters, the node's part, own parts by rank */
    struct progress *progress; /* (size), in base */
};

/* Every rank maps the segment and touches its part.  Errors as comm_open_node(), on all ranks of
 * the node; node_memory_close() follows in any case.  Collective on node. */
int node_memory_open(struct node_memory *m, struct comm *node, size_t shared_bytes,
                     size_t own_bytes);
void node_memory_close(struct node_memory *m);

/* The own part of a rank of the node; bytes that the kernel counts.  Local. */
char *node_memory_own(const struct node_memory *m, int rank);
size_t node_memory_used(const struct node_memory *m);

/* Raise, and wait until it has been raised to value.  Local. */
void counter_raise(struct counter *c);
void counter_await(struct counter *c, uint32_t value);
