/* The engine owns one model's memory and stream, and does the work of one step in the order in
 * which accelerate's users write it: draw, then for each micro-batch forward and backward, step. */
#pragma once
#include "parallel/lend.h"
#include "train/feed.h"
#include "train/setup.h"
#include "train/stop.h"
#include "train/trace.h"

/* The samples of one optimizer step, the same on all ranks. */
struct window {
    int64_t epoch, begin, n; /* places [begin, begin + n) of the epoch's order */
    int64_t n_micro;
    int64_t n_valid; /* targets that count, over all ranks */
    int64_t n_own;   /* those of this rank's samples, where ranks step alone; else 0 */
    int64_t step;    /* that this window is for, from 1 */
    bool stop;       /* some rank was asked to stop: the window is not to be computed */
};

struct step_report {
    double loss, lr, grad_norm; /* grad_norm: of the gradient without its loss scale */
    double loss_scale;          /* that the step was computed with; 1 unless fp16 */
    bool skipped;               /* the gradient overflowed: nothing was changed but the counters */
};

struct eval_report {
    double loss;
    double accuracy; /* share of right answers; NaN where that means nothing */
    int64_t n_valid;
    bool abandoned; /* a stop was asked for: these figures are of a part only */
};

struct engine {
    struct run *run;    /* borrowed */
    struct device *dev; /* borrowed */
    struct stream stream;
    struct stack tape, frames;
    void *tape_memory, *frame_memory, *scratch_memory; /* owned */
    struct lend lend; /* what of the tape lies in the gradients; tape_bytes are its own */
    size_t tape_bytes, frame_bytes, scratch_bytes;
    struct comm *group, *replicas; /* owned, but for a group that is run->comm; replicas or NULL */
    struct comm *below;            /* owned: what group is over, if it is node memory; or NULL */
    struct comm *second;           /* owned: neighbours that keep what leaves, or NULL */
    struct comm *second_below;     /* owned: what second is over, if it is node memory; or NULL */
    struct node *node;             /* group's memory, or NULL */
    struct shard *shard;           /* owned */
    struct optim_step *row_step;   /* owned: by row */
    struct feed train, eval;
    /* counters: all of them are in the checkpoint */
    int64_t step, epoch, index, samples, tokens;
    int64_t skipped;         /* steps without an update */
    struct loss_scale scale; /* fp16: of the next step */
    bool has_scale;          /* else it is not used */
    int64_t averaged;        /* the step behind which all ranks had the same weights last */
    struct stop stop;        /* this rank's wish to stop */
    struct trace *trace;     /* owned; NULL unless the job profiles */
    /* of the step in hand */
    double loss_sum;
    int64_t last_begin, last_n; /* this rank's latest micro-batch, for the report on a NaN */
};

/* Memory for everything, first weights, or those of run->from.  Collective on run->comm. */
int engine_create(struct run *run, struct device *dev, struct engine **out);
void engine_destroy(struct engine **e);

/* Bytes of model state and activations that the engine holds, node memory apart; and that of the
 * whole node.  Local. */
size_t engine_bytes(const struct engine *e);
size_t engine_node_bytes(const struct engine *e);

/* Say what of the model is on disk, and how ranks read and write it; nothing where nothing is.
 * Collective on run->comm. */
void engine_say_disk(const struct engine *e); /* disk.c */

/* The next step's samples, up to the end of the epoch.  Collective on run->comm. */
void engine_draw(struct engine *e, struct window *w);

/* Micro-batch i of w: this rank's share, forward and backward.  Sums over the ranks happen behind
 * the last one.  Collective on run->comm. */
void engine_forward(struct engine *e, const struct window *w, int64_t i);
void engine_backward(struct engine *e, const struct window *w, int64_t i);

/* Norm, clipping, update; counts the step.  In fp16 a step whose gradient overflows is skipped: it
 * leaves weights, moments and the schedule as they are.  ERR_DIVERGED, with the layer where it
 * began, before any weight is changed; in fp16 only at the smallest loss scale.
 * Collective on run->comm. */
int engine_step(struct engine *e, const struct window *w, struct step_report *out);

/* Go on with a checkpoint's loss scale; a fixed one stays what the job says.  Local. */
void engine_take_scale(struct engine *e, const struct loss_scale *scale);

/* Where ranks step alone, and the step is one of those that end with an average: the weights'.
 * Collective on run->comm. */
void engine_average(struct engine *e);

/* Before a checkpoint, which holds what the run goes on with: where ranks step alone, make weights
 * and moments the same on all of them; where a communication hook keeps errors, share them out
 * evenly.  Collective on run->comm. */
void engine_settle(struct engine *e);

/* Loss on the evaluation samples, at most n_batches micro-batches of all ranks (0: all).
 * Collective on run->comm. */
void engine_eval(struct engine *e, int64_t n_batches, struct eval_report *out);

/* A pass over the engine's memory with everything set but the batch.  Local. */
struct pass engine_pass(struct engine *e, bool training, int64_t step);
