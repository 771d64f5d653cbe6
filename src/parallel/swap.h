/* Private to parallel/: a shard's optimizer states and master weights on disk. */
#pragma once
#include "parallel/shard.h"

/* Put them there, before any memory is taken, and plan the tiles.  ERR_RESOURCE.  Local. */
int swap_create(struct shard *s);
void swap_destroy(struct shard *s);

/* Elements of the tiles' buffers on rank.  Local, pure. */
int64_t swap_buffer_elems(const struct plan *p, const struct model *m,
                          const struct shard_conf *conf, int rank);

/* The update of all parameters, tile by tile.  step: a row's.  Local. */
void swap_update(struct shard *s, const struct optim_ops *ops, const void *conf,
                 const struct optim_step *step);
