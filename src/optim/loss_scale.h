/* The loss scale of fp16 training: gradients are computed a power of two larger than they are, so
 * that small ones do not vanish, and a step whose gradient overflows is left out.
 * Source: Micikevicius et al. 2018, arXiv:1710.03740; the rule is that of DeepSpeed 0.19's
 * fp16/loss_scaler.py, but for one thing: it changes the scale before it divides by it, so a step
 * on which the scale grows is divided by twice the scale that it was computed with.  Here a step is
 * divided by its own scale. */
#pragma once
#include "base/err.h"
#include "job/opt.h"

struct loss_scale_conf {
    double loss_scale;           /* fixed; 0: dynamic */
    int64_t initial_scale_power; /* dynamic: it begins as 2^this */
    int64_t loss_scale_window;   /* steps without overflow until it doubles */
    int64_t hysteresis;          /* overflows until it halves */
    bool consecutive_hysteresis; /* these must be consecutive */
    double min_loss_scale;
};

/* In every checkpoint. */
struct loss_scale {
    double scale;
    int64_t iter;          /* steps so far, skipped ones included */
    int64_t last_overflow; /* the iter of it; -1: none yet */
    int64_t hysteresis;    /* overflows left until the scale halves */
};

/* Local. */
struct loss_scale loss_scale_first(const struct loss_scale_conf *c);

/* After a step that was computed with s->scale: the next step's.  ERR_DIVERGED, and s as it was, if
 * it overflowed and the scale would halve but is at its minimum.  Local, but equal on all ranks. */
int loss_scale_update(struct loss_scale *s, const struct loss_scale_conf *c, bool overflow);
