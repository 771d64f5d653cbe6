/* Private to comm/: implementations of the table, and the tree that they sum in. */
#pragma once
#include "comm/comm.h"

/* MPI's world.  Collective on all ranks of the launcher. */
int comm_mpi_open(struct comm **out);

/* Allocate what comm_sum_f64() needs.  Local. */
void comm_sum_room(struct comm *c);

/* One exchange of partial sums with a peer: the chunks chunk[first … first + n - 1]. */
struct tree_edge {
    int peer;
    bool send; /* else receive and add */
    int first, n;
};

/* What one rank does in a tree reduce-scatter, level by level from the leaves. */
struct tree {
    struct tree_edge *edge; /* owned */
    int *chunk;             /* owned: chunk numbers = ranks that will own them */
    int *level_end;         /* owned: edges of level i end here */
    int n_levels;
};

/* The schedule of one rank of size.  Owned by the caller until tree_clear.  Local, pure. */
void tree_init(struct tree *t, int rank, int size);
void tree_clear(struct tree *t);
