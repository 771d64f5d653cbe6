/* The engine's state to a checkpoint and back. */
#pragma once
#include "train/engine.h"

/* Write OUTPUT_DIR/step-N with weights, moments, counters, job and vocabulary.
 * Collective on run->comm. */
int save_checkpoint(struct engine *e, const char *job_text, const char *run_id,
                    int64_t metrics_bytes);

/* Fill weights, moments and counters from a checkpoint that run_setup has matched.  Each rank reads
 * what it holds; shard_refresh() must follow.  ERR_DATA.  Local. */
int save_load(struct engine *e, const struct ckpt *k);

/* Weights only, for eval and generate; otherwise the same.  Local. */
int save_load_weights(struct engine *e, const struct ckpt *k);
