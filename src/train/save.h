/* The engine's state to a checkpoint and back. */
#pragma once
#include "ckpt/background.h"
#include "train/engine.h"

struct save_request {
    const char *job_text, *run_id;
    int64_t metrics_bytes;
    enum ckpt_type type;
    int file_ranks;   /* SHARDED: neighbours that share a file; below 2: each has its own */
    double best_loss; /* of the run so far; NaN: none */
    bool is_best;     /* this step is the best */
};

/* Write OUTPUT_DIR/step-N with weights, moments, counters, job and vocabulary; with b, only copy
 * them and begin: ckpt_background_poll() says how it ended.  Collective on run->comm. */
int save_checkpoint(struct engine *e, const struct save_request *q, struct ckpt_background *b);

/* Bytes of values that this rank saves.  Local. */
int64_t save_bytes(const struct engine *e);
/* How they come to a snapshot of e's own.  Local. */
struct ckpt_gather save_gather(struct engine *e);

/* Fill weights, moments and counters from a checkpoint that fits the model: at the start, or into a
 * run that goes on.  Each rank reads the parts that it owns and nothing else; where it holds more,
 * the rest comes from the ranks that own it.  shard_refresh() must follow.  ERR_DATA.
 * Collective on run->comm. */
int save_load(struct engine *e, const struct ckpt *k);

/* Weights only, for eval and generate; otherwise the same.  Collective on run->comm. */
int save_load_weights(struct engine *e, const struct ckpt *k);
