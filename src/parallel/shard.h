/* The shard engine: a model's master weights, gradients and moments as flat arrays cut by the plan,
 * and the hooks that move them.  Layers see pointers by row; this is the only code that knows where
 * they point and when values travel.
 *
 * An array is either whole (plan->n_elem, the same layout on every rank) or holds this rank's parts
 * of the units one behind the other.  Which is which follows from the policy's columns. */
#pragma once
#include "comm/node.h"
#include "optim/optim.h"
#include "parallel/flow.h"
#include "parallel/offload.h"
#include "parallel/pool.h"
#include "parallel/power_sgd.h"

struct shard_unit;

struct shard_conf {
    int n_states;
    enum dtype compute;    /* DTYPE_F32: layers may read the master weights themselves */
    enum dtype reduce;     /* that addends and sums of gradients over the ranks are rounded to */
    bool sync_each_batch;  /* sum over the ranks at every micro-step, as sharded gradients are */
    int64_t reduce_bucket; /* elements that are summed over the ranks at once; 0: 2^22 */
    struct power_sgd_conf power_sgd;
    int64_t average_every; /* row->averages: steps from one average of the weights to the next */
    struct offload_conf offload; /* only where the optimizer is sharded */
    struct overlap overlap;
    bool node_memory; /* what ranks of a node read of each other lies in memory that they share */
    bool node_copy;   /* and gathered weights are there once a node, not once a rank */
    int node_ranks;   /* ranks of the group on a node; the fewest where nodes differ */
    int second_size;  /* neighbours in the group that keep what leaves after forward, each a part,
                         so that backward gathers among them alone; 0: none do */
};

struct shard {
    const struct plan *plan;   /* borrowed */
    const struct policy *row;  /* borrowed: plan->policy */
    const struct model *model; /* borrowed */
    struct comm *comm;         /* borrowed: the ranks that share the model */
    struct comm *replicas;     /* borrowed: the same parts on other nodes; NULL: none */
    struct comm *second;       /* borrowed: those of comm that keep what leaves; NULL: none */
    struct node *node;         /* borrowed: comm's memory, or NULL */
    struct stream *stream;     /* borrowed */
    struct shard_conf conf;
    int64_t n_own_train;            /* elements of this rank's parts of what is trained */
    float *master;                  /* owned: parts if row->shard_optim, else whole */
    float *grad;                    /* owned: parts if row->shard_grads, else whole; as state
                                       without what is frozen */
    float *state[OPTIM_MAX_STATES]; /* owned: as master */
    void *copy; /* owned: whole weights in the compute dtype, where layers do not read
                            the master itself and parameters are not sharded */
    struct flow flow;
    struct pool gathered;   /* whole units' weights, while parameters are sharded */
    struct pool unit_grads; /* whole units' gradients of the micro-step in hand */
    char *gathered_memory, *unit_grad_memory; /* owned */
    char *second_memory;                      /* owned: this rank's parts of what left */
    bool has_node_copy;                       /* gathered_memory, or copy, is the node's */
    float *reduce_scratch;                    /* owned */
    double *block_sum;                        /* owned: squares of this rank's parts, by block */
    void **weight;                            /* owned: by row; NULL while its unit is freed */
    float **grad_of;                          /* owned: by row; where backward adds */
    int64_t *unset;                           /* owned: by row; elements there that are unset yet */
    struct shard_unit *unit;                  /* owned: what the hooks get */
    struct offload *offload;   /* owned: what is on disk, or NULL; master and state may be there */
    struct offload_tile *tile; /* owned: (n_tiles) pieces that an update streams over */
    int64_t n_tiles;
    struct power_sgd *power_sgd; /* owned: sums in place of the units; or NULL */
    bool last;                   /* the micro-step in hand is the step's last */
};

/* Ranks that hold one model, and those that hold the same part of other copies. */
struct shard_ranks {
    struct comm *comm, *replicas; /* replicas NULL: none */
    struct comm *second;          /* second_size neighbours of comm; NULL: none */
    struct node *node;            /* of comm, as large as shard_measure() says; NULL: none */
};

/* Memory for the plan's arrays, zeroed, and hooks on the model's units.  ERR_RESOURCE.  Local. */
int shard_create(const struct plan *plan, const struct model *m, const struct shard_conf *conf,
                 const struct shard_ranks *ranks, struct stream *s, struct shard **out);
void shard_destroy(struct shard **s);

/* Bytes of one rank, by what they hold.  0 where a policy needs no such array. */
struct shard_memory {
    size_t master, copy; /* fp32 weights; weights in the compute dtype */
    size_t grad, state;  /* gradients; all moments together */
    size_t gathered;     /* whole units while parameters are sharded */
    size_t second;       /* parts of them from forward to backward */
    size_t unit_grads;   /* gradients of units while they are formed */
    size_t scratch;      /* of sums over the ranks */
    size_t swap;         /* buffers of what is on disk */
    size_t disk;         /* and what is there: no memory */
    size_t node_own;     /* of all these what lies in node memory */
    size_t node;         /* what the node has once, beside these */
    size_t hook;         /* what a communication hook keeps */
};

/* What shard_create takes on rank.  Local, pure. */
void shard_measure(const struct plan *plan, const struct model *m, const struct shard_conf *conf,
                   int rank, struct shard_memory *out);
/* Are gathered weights in node memory once for all ranks of a node?  Local. */
bool shard_keeps_node_copy(const struct plan *plan, const struct shard_conf *conf);
size_t shard_bytes(const struct plan *plan, const struct model *m, const struct shard_conf *conf,
                   int rank); /* the sum of it, node apart.  Local. */

/* Bytes that a rank sends in one optimizer step, on average over the ranks: a gather or a sum of n
 * bytes over P ranks sends n (P - 1) / P. */
struct shard_traffic {
    double gathered, summed, sent;
    double left; /* and what leaves a node, whose ranks are neighbours, on average over the nodes */
};

/* Where and how often the sums of a step are made. */
struct shard_world {
    int64_t accumulation; /* micro-steps */
    int64_t n_replicas;   /* groups that hold the same parts */
    int64_t node_ranks;   /* of all groups, on a node */
};

/* Local, pure. */
void shard_count_traffic(const struct plan *plan, const struct model *m,
                         const struct shard_conf *conf, const struct shard_world *world,
                         struct shard_traffic *out);

/* First values by the rows' rules, keyed by seed, tensor name and global index: each rank fills
 * what it holds.  Local; shard_refresh() must follow. */
void shard_init(struct shard *s, uint64_t seed);

/* Make what layers read anew, after the master weights were written.  Collective on s->comm. */
void shard_refresh(struct shard *s);

/* Around the micro-steps of one optimizer step.  Local; the hooks that fire between are collective
 * on the shard's communicators. */
void shard_begin_step(struct shard *s);
void shard_begin_micro(struct shard *s, bool last);

/* Behind the step's last micro-step: what a communication hook sums, which units do not.
 * Collective on the shard's comm. */
void shard_sum_by_hook(struct shard *s, int64_t step);

/* Norm of the summed gradient over all ranks: squares in fp64 by blocks of 1,024 elements of a
 * tensor, block sums added as 128-bit integers, so the bits depend on nothing but the gradient.
 * *finite false: the gradient holds NaN or infinity.  Where row->averages it is the rank's own
 * norm, but *finite is all replicas'.  Collective on the shard's communicators. */
double shard_grad_norm(struct shard *s, bool *finite);

/* One update of all parameters that are trained, and new weights for the layers.  step is by row.
 * Collective on the shard's comm. */
void shard_update(struct shard *s, const struct optim_ops *ops, const void *conf,
                  const struct optim_step *step);

/* Where row->averages: replace the weights, or every state, by their mean over the replicas, in the
 * sums' tree; the same bits on all of them afterwards.  Else nothing.  shard_refresh() must follow
 * for weights.  Collective on the shard's replicas. */
void shard_average_weights(struct shard *s);
void shard_average_states(struct shard *s);

/* ERR_RESOURCE if a disk has failed under the arrays that are on it.  Local. */
int shard_disk_status(struct shard *s);

/* One rank's part of a tensor in an array that follows the plan. */
struct shard_part {
    int64_t begin, end; /* elements of the tensor */
    float *values;      /* of element begin */
};
enum shard_array {
    SHARD_MASTER,
    SHARD_GRAD,
    SHARD_STATE,                                       /* + i: state i */
    SHARD_HOOK_ERROR = SHARD_STATE + OPTIM_MAX_STATES, /* PowerSGD's, of a row, and Q */
    SHARD_HOOK_Q
};

/* The part of row that this rank owns: each element of a model has one owner among s->comm.  A
 * frozen row has no part in gradient and states.
 * SHARD_GRAD: after the step's last micro-step.  Local. */
struct shard_part shard_own_part(const struct shard *s, int array, int row);

/* The same of any rank of s->comm, without values.  Local. */
struct shard_part shard_part_of(const struct shard *s, int array, int row, int rank);

/* Own parts of master or a state were written: bring the others' where the array is whole.
 * Collective on s->comm. */
void shard_share(struct shard *s, int array);

/* What this rank holds of row in master or state: its own part, or all of it.  Local. */
struct shard_part shard_held_part(const struct shard *s, int array, int row);
