/* Node memory: one segment that the ranks of a node map, and a communicator over it.  What lies in
 * the segment is gathered and summed in place, by reading the neighbours' memory; other buffers,
 * and other nodes' ranks, go through the communicator below.  Sums have the same bits: in a node
 * the same tree is added in one pass, and what is not a whole subtree there travels.
 *
 * The segment is a memfd, opened by the others through /proc, so that neither the size of /dev/shm
 * nor MPI's windows matter.  It has a part that the node has once, and an own part for each rank;
 * offsets within the own parts mean the same on all ranks. */
#pragma once
#include "comm/comm.h"

struct node;

/* A communicator of c's ranks over node memory.  c is borrowed until comm_close(*out), which gives
 * the memory back.  node: NULL, or (for tests) the number of the node that this rank shall be on.
 * Errors on all ranks: ERR_RESOURCE where a node has too little memory, ERR_COMM where
 * a rank cannot open another's memory.  Collective on c. */
int comm_open_node(struct comm *c, const int *node, size_t shared_bytes, size_t own_bytes,
                   struct comm **out, struct node **memory);

/* A communicator of c's ranks, who are some of those that have memory, over that memory, for
 * gathers and sums that all of those make at the same place of their order, each in its own c.  In
 * the node's one part only where no node has ranks of several c's.  c and memory are borrowed until
 * comm_close().  Collective on c. */
struct comm *comm_share_node(struct comm *c, struct node *memory);

/* The node's one part, and this rank's own.  Aligned to 4096 bytes, zeroed.  Local. */
void *node_shared(const struct node *n);
void *node_own(const struct node *n);

/* Bytes that the node's segment takes now, as the kernel counts them, on the rank that made it;
 * elsewhere 0.  Local. */
size_t node_bytes_used(const struct node *n);

/* Say that this rank has read what it wanted up to here; returns the mark's number, which is the
 * same on all ranks that make the same calls.  Local. */
uint32_t node_mark(struct node *n);
/* Wait until all ranks of the node have made that mark.  Collective on the node's ranks. */
void node_await(struct node *n, uint32_t mark);
