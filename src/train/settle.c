/* Ranks that step alone, and what every rank keeps for itself: made one where that is due. */
#include "train/engine.h"

/* Every so many steps, and behind the last. */
static bool is_average_due(const struct engine *e)
{
    int64_t every = e->run->shard.average_every;
    return e->run->strategy.policy->averages &&
           (e->step % every == 0 || e->step == e->run->batching.total_steps);
}

static void average_weights(struct engine *e)
{
    shard_average_weights(e->shard);
    shard_refresh(e->shard);
    e->averaged = e->step;
}

void engine_average(struct engine *e)
{
    if (is_average_due(e))
        average_weights(e);
}

void engine_settle(struct engine *e)
{
    if (e->shard->power_sgd)
        power_sgd_settle(e->shard->power_sgd);
    if (!e->run->strategy.policy->averages)
        return;
    if (e->averaged != e->step)
        average_weights(e);
    shard_average_states(e->shard);
}
