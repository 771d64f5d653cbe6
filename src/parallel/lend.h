/* Activations in the memory of gradients.  A gradient is formed when backward comes to its layer,
 * and by then the activations of all later layers are gone.  Where one micro-batch is a step and
 * gradients are whole, a layer's activations can lie where those of an earlier one will be. */
#pragma once
#include "parallel/shard.h"

struct lend {
    size_t own_bytes;  /* of the tape that are its own */
    int64_t first;     /* the rest lies in the flat gradients from this element on … */
    size_t more_bytes; /* … and has so many; 0: nothing is lent */
};

/* Whether gradients hold nothing from a step's update to the next backward.  Local, pure. */
bool lend_can(const struct policy *row, const struct shard_conf *conf, int64_t accumulation);

/* The tape of c, a training step, whose dry run took tape_bytes: as little of its own as can be.
 * A dry run shows how far the tape reaches when each gradient is written.  Local. */
void lend_plan(const struct plan *p, const struct model *m, const struct device *dev,
               const struct plan_case *c, size_t tape_bytes, struct lend *out);
