/* The dtypes of a run: which one each kind of value has, and what its keys say. */
#pragma once
#include "base/text.h"
#include "train/conf.h"

/* Of activations, their gradients and the weights that layers read.  Local. */
enum dtype precision_compute(const struct strategy_conf *c);

/* A line for each key that has no effect under this precision, and why.  Local. */
void precision_notes(const struct run_conf *c, struct text *out);
