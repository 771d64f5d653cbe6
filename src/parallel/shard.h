/* The shard engine: a model's parameters, gradients and moments as flat arrays cut by the plan, and
 * the hooks that move them.  Layers see pointers by row; this is the only code that knows where
 * they point and when values travel. */
#pragma once
#include "comm/comm.h"
#include "optim/optim.h"
#include "parallel/plan.h"

struct shard_unit;

struct shard {
    const struct plan *plan;   /* borrowed */
    const struct model *model; /* borrowed */
    struct comm *comm;         /* borrowed: the ranks that share the model */
    struct stream *stream;     /* borrowed */
    float *param, *grad;       /* owned: (plan->n_elem) */
    float *micro;              /* owned: one micro-step's gradient, only with sync_each_batch */
    float *state[OPTIM_MAX_STATES]; /* owned: (plan->n_elem) */
    int n_states;
    float *reduce_scratch; /* owned */
    int64_t n_reduce_scratch;
    double *block_sum;  /* owned: squares of one tensor's part, by block */
    void **weight;      /* owned: by row */
    float **grad_of;    /* owned: by row; where backward adds */
    struct shard_unit *unit; /* owned: what the hooks get */
    bool reduce_now;         /* this micro-step's gradients are summed over the ranks */
};

struct shard_conf {
    int n_states;
    bool sync_each_batch; /* sum over the ranks at every micro-step, as sharded strategies do */
};

/* Memory for the plan's arrays, zeroed, and hooks on the model's units.  ERR_RESOURCE.  Local. */
int shard_create(const struct plan *plan, const struct model *m, const struct shard_conf *conf,
                 struct comm *c, struct stream *s, struct shard **out);
void shard_destroy(struct shard **s);

/* Bytes that shard_create takes on one rank.  Local, pure. */
size_t shard_bytes(const struct plan *plan, const struct shard_conf *conf);

/* First values by the rows' rules, keyed by seed, tensor name and global index.  Local. */
void shard_init(struct shard *s, uint64_t seed);

/* Around the micro-steps of one optimizer step.  Local; the hooks that fire between are collective
 * on the shard's comm when last is set (or at every micro-step with sync_each_batch). */
void shard_begin_step(struct shard *s);
void shard_begin_micro(struct shard *s, bool last);
void shard_end_micro(struct shard *s);

/* Norm of the summed gradient over all ranks: squares in fp64 by blocks of 1,024 elements of a
 * tensor, block sums added as 128-bit integers, so the bits depend on nothing but the gradient.
 * *finite false: the gradient holds NaN or infinity.  Collective on the shard's comm. */
double shard_grad_norm(struct shard *s, bool *finite);

/* One update of all parameters.  decay says for a row whether weight decay applies.
 * Collective on the shard's comm. */
void shard_update(struct shard *s, const struct optim_ops *ops, const void *conf,
                  enum decay_on decay_on, const struct optim_step *st);
