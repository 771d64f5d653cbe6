/* Private to comm/: implementations of the table, and the tree that they sum in. */
#pragma once
#include "comm/comm.h"

/* MPI's world.  Collective on all ranks of the launcher. */
int comm_mpi_open(struct comm **out);

/* n zeroed items of a communicator's tables; without memory for them there is no job.  Local. */
void *comm_zeroed(size_t n, size_t item_bytes);

/* Allocate what comm_sum_f64() needs.  Local. */
void comm_sum_room(struct comm *c);

/* The thread that runs tasks, and its end.  Local. */
struct worker *worker_start(void);
void worker_stop(struct worker **w);

/* What every implementation has as wait.  Local. */
void task_wait(struct comm *c, struct comm_task *t);

/* Pieces of MPI's collectives for other implementations, on the communicator that tasks use; c is
 * MPI's.  Send the own part to the ranks to, receive the parts of the ranks from, in their places;
 * and reduce_scatter from a level of this rank's tree on, where what is below has been summed.
 * Collective on c. */
struct exchange {
    int *to, *from; /* owned */
    int n_to, n_from;
};
void mpi_exchange(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes,
                  const struct exchange *x);
void mpi_reduce_levels(struct comm *c, int first_level, float *buf, const int64_t *cut,
                       int64_t slice_elems, enum dtype dtype, float *scratch);

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

/* m of S(a,b) = S(a,m) + S(m,b).  Local, pure. */
int tree_middle(int a, int b);

/* The rank of [a, b) that holds the partial sum of part c.  Local, pure. */
int tree_holder(int c, int a, int b);

/* The schedule of one rank of size.  Owned by the caller until tree_clear.  Local, pure. */
void tree_init(struct tree *t, int rank, int size);
void tree_clear(struct tree *t);
