/* From a job to everything that a run needs before memory is allocated: data, model, policy, plan,
 * batch arithmetic.  `check` stops here; `train` goes on with an engine. */
#pragma once
#include "ckpt/ckpt.h"
#include "comm/comm.h"
#include "parallel/plan.h"
#include "parallel/shard.h"
#include "train/conf.h"
#include "train/strategy.h"

/* Samples of a step and steps of the job.  A micro-batch of all ranks is micro_global samples; a
 * step takes accumulation of them, fewer where the epoch ends. */
struct batching {
    int64_t micro_global, accumulation;
    int64_t n_samples; /* of an epoch */
    int64_t max_local; /* most samples of one rank in a micro-batch */
    int64_t steps_per_epoch, total_steps;
};

/* What a checkpoint says about the run that wrote it; zero for a fresh start. */
struct resume_point {
    int64_t step, epoch, index; /* index: place in the epoch of the next sample */
    int64_t samples, tokens;    /* seen so far */
    int64_t skipped;            /* steps without an update: the gradient overflowed */
    bool has_scale;
    struct loss_scale scale;
    int64_t metrics_bytes;
    int64_t micro_global; /* 0: none */
    int64_t world;
    double best_loss; /* NaN: none */
    const char *run_id;
    const char *strategy, *plan; /* who held which part … */
    int64_t local_world; /* … of how many: of a local checkpoint, it may be a converted one */
};

/* What a run is for.  Only training needs an optimizer and the ranks that the job asks for; text is
 * generated without the data file. */
enum run_purpose { RUN_TRAIN, RUN_EVAL, RUN_GENERATE };

struct run {
    enum run_purpose purpose;
    struct arena *arena; /* borrowed */
    struct comm *comm;   /* borrowed */
    struct run_conf conf;
    struct strategy strategy;
    struct data *data, *eval_data; /* owned; eval_data NULL: data's held-out part */
    struct model *model;
    struct plan *plan;
    struct batching batching;
    struct ckpt *from; /* owned: the checkpoint to go on from, or NULL */
    struct init *init; /* owned: what the first weights come from, or NULL (train/init.h) */
    struct resume_point resume;
    struct shard_conf shard;
    int n_recomputed; /* modules that run forward again in backward */
};

/* What a checkpoint says of its run.  ERR_DATA.  Local. */
int run_resume_point(const struct ckpt *k, struct arena *a, struct resume_point *p);

/* The shape of samples that the meta object of a checkpoint tells.  ERR_DATA.  Local. */
int run_meta_shape(const struct json *meta, struct sample_shape *shape);

/* Open what the job trains and evaluates on into r, whose conf has been read; ERR_DATA where its
 * classes are not those that r->from was trained on.  Local. */
int run_open_data(struct run *r);

/* Where evaluation samples come from. */
const struct data *run_eval_source(const struct run *r, enum data_part *part); /* Local. */

/* Open and check everything for comm->size ranks, or plan_ranks of them where that is not 0 (then
 * only for `check`).  from: the checkpoint to go on from, evaluate or write with, taken over; NULL
 * for a fresh start.  Errors as in run_conf and data; ERR_DATA if the checkpoint is of another
 * model.  Local, but equal on all ranks. */
int run_setup(const struct job *j, struct comm *c, enum run_purpose purpose, int plan_ranks,
              struct ckpt *from, struct arena *a, struct run *out);
void run_clear(struct run *r);

/* Where an array of a checkpoint lies: the shard's array (enum shard_array) and the row. */
struct run_place {
    int array, row;
};

/* The arrays of a full checkpoint in their order: all tensors of the model, then each optimizer
 * state of those that are trained, then what a communication hook keeps.  place: by array, or NULL.
 * Local. */
struct ckpt_array *run_arrays(const struct run *r, int *n, struct run_place **place);

/* Whether a checkpoint may lack the array: a hook's state begins anew.  Local. */
bool run_array_optional(const struct run_place *at);

/* Bytes that training takes on one rank: model state and activations.  Local. */
size_t run_bytes(const struct run *r, const struct plan_memory *m);

/* How the ranks that share a copy of the model lie on nodes. */
struct node_shape {
    int fewest, most; /* of them on one */
    bool in_order;    /* nodes are neighbours, and all alike */
};

/* How the ranks of a node work together, and who keeps what leaves after forward: into out.
 * Local. */
void run_share_node(const struct run *r, const struct node_shape *n, struct shard_conf *out);

/* Lines for what of the latter is not as the job says, and why.  Local. */
void run_note_second(const struct run *r, struct text *out);

/* Lines that say what will run: model, data, strategy, batch, length.  Local. */
void run_describe(const struct run *r, const struct device *dev, struct text *out);

/* Threads a rank should use.  Local. */
int run_threads(const struct run_conf *c, const struct comm *comm);
