/* The dtypes of a run: which one each kind of value has, and what its keys say. */
#pragma once
#include "base/text.h"
#include "parallel/shard.h"
#include "train/conf.h"

/* Of activations, their gradients and the weights that layers read.  Local. */
enum dtype precision_compute(const struct strategy_conf *c);

/* Of sums of gradients over the ranks.  Local. */
enum dtype precision_reduce(const struct strategy_conf *c);

/* What a model's outputs are rounded to before the loss, or who samples from them, sees them.
 * Local. */
enum dtype precision_output(const struct strategy_conf *c);

/* Lines for an output dtype that does nothing, or harm.  Local. */
void precision_notes(const struct strategy_conf *c, struct text *out);

/* The table of a run's dtypes as a line for a person, and as a JSON object.  Local. */
void precision_describe(const struct shard_conf *c, enum dtype output, struct text *out);
void precision_to_json(const struct shard_conf *c, enum dtype output, struct text *out);
