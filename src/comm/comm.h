/* Messages between ranks.  The control plane (agreement, splits, small integers) is MPI on host
 * memory; the data plane is a table of collectives: self for one rank, mpi for several.
 *
 * Nothing here returns an error in the middle of a step: a library failure prints its text and ends
 * the job.  Errors of the caller's own are agreed on with TRY_ALL before anybody goes on. */
#pragma once
#include "base/err.h"
#include "tensor/tensor.h"
#include <stdint.h>

struct comm;
struct comm_task;
struct worker;

/* Flat arrays cut into one part a rank: rank r owns elements cut[r] … cut[r + 1] - 1. */
struct comm_ops {
    const char *name;
    /* Every rank's own part goes to all, in place.  elem_bytes is the size of one element. */
    void (*all_gather)(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes);
    /* In: this rank's addend, all parts.  Out: the own part is the sum over ranks, added in the
     * fixed binary tree S(a,b) = S(a,m) + S(m,b), m = a + the largest power of two below b - a,
     * whatever the parts; the other parts are undefined.  fp32; addends and each partial sum are
     * rounded to dtype: DTYPE_F32 (not at all), DTYPE_BF16 or DTYPE_F16.  At most slice_elems of
     * each part are exchanged at once, so that scratch needs no more than the largest slice of all
     * parts. */
    void (*reduce_scatter)(struct comm *c, float *buf, const int64_t *cut, int64_t slice_elems,
                           enum dtype dtype, float *scratch);
    void (*wait)(struct comm *c, struct comm_task *t); /* see comm_wait() */
    /* n elements of every rank to rank 0 alone: those of rank r are all[cut[r]] … there; the others
     * look at neither all nor cut. */
    void (*gather)(struct comm *c, const void *own, int64_t n, void *all, const int64_t *cut,
                   size_t elem_bytes);
    void (*broadcast)(struct comm *c, void *buf, size_t n_bytes, int root);
    /* elementwise, exact: integers only */
    void (*sum_i64)(struct comm *c, int64_t *v, int n);
    void (*max_i64)(struct comm *c, int64_t *v, int n);
    void (*barrier)(struct comm *c);
    struct comm *(*split)(struct comm *c, int color, int key);
    void (*close)(struct comm **c);
};

struct comm {
    const struct comm_ops *ops;
    int rank, size;
    int node_rank, node_size; /* among the ranks that share this one's memory */
    int node;                 /* which one: the lowest rank there */
    int64_t *sum_room;        /* owned: for comm_sum_f64, a step allocates nothing */
    struct worker *worker;    /* borrowed; NULL: tasks run where they are started */
    void *impl;               /* owned by the implementation */
};

/* A gather or a sum that goes on behind the caller's back, on a thread that all communicators of a
 * process share: tasks run one after the other in the order in which they were started, which must
 * be the same on all ranks.  all_gather and reduce_scatter themselves may be called only while no
 * task is under way; the other operations at any time, from the thread that opened the world. */
struct comm_task {
    enum { COMM_ALL_GATHER, COMM_REDUCE_SCATTER } what;
    void *buf; /* borrowed, with what follows, until comm_wait() has returned */
    const int64_t *cut;
    size_t elem_bytes;   /* all_gather */
    int64_t slice_elems; /* reduce_scatter */
    enum dtype dtype;    /* reduce_scatter */
    float *scratch;      /* reduce_scatter; tasks may share it */
    /* the rest is comm_start()'s */
    struct comm *comm;
    struct comm_task *next;
    bool done;
};

/* Begin t; comm_wait() returns when it is done.  Collective on c.  comm_run() is both. */
void comm_start(struct comm *c, struct comm_task *t);
void comm_wait(struct comm_task *t);
void comm_run(struct comm *c, struct comm_task *t);

/* Whether this is the thread that runs tasks.  Local. */
bool comm_in_background(const struct comm *c);

/* One rank without MPI.  Local. */
struct comm *comm_self(void);

/* How many ranks a launcher has started, from its environment: 1 without one.  ERR_USAGE if srun
 * started several tasks without PMIx, since each would then be a world of its own.  Local. */
int comm_launched(int *n_ranks);

/* All ranks of the launcher: MPI's world, or comm_self() where there is only one (MPI is then not
 * started at all: a singleton MPI_Init costs 0.3 s).  Collective on all ranks of the launcher. */
int comm_open_world(struct comm **out);

/* Ranks with the same color, ordered by key.  Collective on c. */
struct comm *comm_split(struct comm *c, int color, int key);

/* End a communicator; the world's ends MPI.  Collective on c. */
void comm_close(struct comm **c);

/* Every rank passes its status; all return the worst one, with the text of its lowest rank.
 * Collective on c. */
int comm_agree(struct comm *c, int rc);
#define TRY_ALL(c, call)                                                                           \
    do {                                                                                           \
        int rc_ = comm_agree((c), (call));                                                         \
        if (rc_ != ERR_OK)                                                                         \
            return rc_;                                                                            \
    } while (0)

/* ERR_INTERNAL on all ranks unless value is equal on all; what names it.  Collective on c. */
int comm_same(struct comm *c, uint64_t value, const char *what);

/* Sums of doubles in rank order: the same bits at the same number of ranks.  n ≤ 4.
 * Collective on c. */
void comm_sum_f64(struct comm *c, double *v, int n);

/* Rank 0's bytes to all: the others get *bytes by malloc.  Collective on c. */
void comm_share_bytes(struct comm *c, char **bytes, size_t *n_bytes);

/* Print one line on rank 0's standard output and flush it.  Local. */
void comm_print(const struct comm *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
