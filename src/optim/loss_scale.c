/* The recurrence of the dynamic loss scale. */
#include "optim/loss_scale.h"

#include <math.h>

struct loss_scale loss_scale_first(const struct loss_scale_conf *c)
{
    double dynamic = fmax(ldexp(1, (int)c->initial_scale_power), c->min_loss_scale);
    return (struct loss_scale){.scale = c->loss_scale > 0 ? c->loss_scale : dynamic,
                               .last_overflow = -1,
                               .hysteresis = c->hysteresis};
}

static int shrink(struct loss_scale *s, const struct loss_scale_conf *c)
{
    if (s->hysteresis > 1) {
        s->hysteresis--;
        return ERR_OK;
    }
    if (s->scale <= c->min_loss_scale)
        FAIL(ERR_DIVERGED, "the gradient overflows at the smallest loss scale, %g", s->scale);
    s->scale = fmax(s->scale / 2, c->min_loss_scale);
    return ERR_OK;
}

int loss_scale_update(struct loss_scale *s, const struct loss_scale_conf *c, bool overflow)
{
    if (c->loss_scale > 0) {
        s->iter++;
        return ERR_OK;
    }
    if (overflow) {
        TRY(shrink(s, c));
        s->last_overflow = s->iter;
    } else {
        int64_t stable = s->iter - s->last_overflow - 1;
        bool grow = stable > 0 && stable % c->loss_scale_window == 0;
        if (c->consecutive_hysteresis || grow)
            s->hysteresis = c->hysteresis;
        if (grow)
            s->scale *= 2;
    }
    s->iter++;
    return ERR_OK;
}
