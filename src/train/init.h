/* First weights that come from a file: [model] init_from, and whatever eval and generate read. */
#pragma once
#include "train/engine.h"

/* Open init_from, name its weights and hold them against the model that run_setup has built.
 * ERR_DATA; ERR_USAGE names the key.  Local, but equal on all ranks. */
int init_open(struct run *r);
void init_close(struct run *r);

/* The weights that this rank holds, from run->init; what it has not keeps its value.  ERR_DATA.
 * shard_refresh() must follow.  Local. */
int init_load(struct engine *e);

/* A line on where the first weights come from, and on what keeps its random ones.  Local. */
void init_describe(const struct run *r, struct text *out);
