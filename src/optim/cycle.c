/* OneCycle (Smith 2018, arXiv:1803.09820) and the learning-rate range test, as DeepSpeed 0.19 has
 * them in lr_schedules.py: step k is its batch k - 1. */
#include "optim/cycle.h"

/* Height in the cycle's triangle, 0 … 1, of batch i; stairs instead of a slope where asked for. */
static double height(const struct schedule_conf *c, int64_t i)
{
    int64_t first = c->cycle_first_step_size, second = c->cycle_second_step_size;
    int64_t n_up = c->cycle_first_stair_count, n_down = c->cycle_second_stair_count;
    if (second == OPT_AUTO_I64)
        second = first;
    if (n_down == OPT_AUTO_I64)
        n_down = n_up;
    bool up = i <= first;
    int64_t at = up ? i : first + second - i, length = up ? first : second;
    int64_t n_stairs = up ? n_up : n_down;
    double share = (double)at / (double)length;
    /* whole numbers first: a share just below a stair would fall a whole one */
    return n_stairs > 0 ? floor((double)at * (double)n_stairs / (double)length) / (double)n_stairs
                        : share;
}

static int64_t cycle_length(const struct schedule_conf *c)
{
    int64_t second = c->cycle_second_step_size;
    return c->cycle_first_step_size + (second == OPT_AUTO_I64 ? c->cycle_first_step_size : second);
}

/* What a decay divides or multiplies by, i batches behind the cycle. */
static double decay(const struct schedule_conf *c, double rate, int64_t i)
{
    return c->decay_step_size > 0 ? 1 + rate * (double)i / (double)c->decay_step_size : 1;
}

double cycle_one_lr(const struct schedule_conf *c, double lr, int64_t k)
{
    double max = opt_is_auto(c->cycle_max_lr) ? lr : c->cycle_max_lr;
    double min = opt_is_auto(c->cycle_min_lr) ? max / 10 : c->cycle_min_lr;
    int64_t i = k - 1, n = cycle_length(c);
    if (i <= n)
        return min + (max - min) * height(c, i);
    return min / decay(c, c->decay_lr_rate, i - n);
}

double cycle_one_momentum(const struct schedule_conf *c, int64_t k)
{
    int64_t i = k - 1, n = cycle_length(c);
    double max = c->cycle_max_mom;
    if (c->compat == SCHEDULE_DEEPSPEED && k == 1)
        return c->cycle_min_mom;
    if (i <= n)
        return max - (max - c->cycle_min_mom) * height(c, i);
    return fmin(SCHEDULE_BETA_MAX, max * decay(c, c->decay_mom_rate, i - n));
}

double cycle_range_lr(const struct schedule_conf *c, double lr, int64_t k)
{
    double min = opt_is_auto(c->lr_range_test_min_lr) ? lr : c->lr_range_test_min_lr;
    double interval = (double)(k - 1) / (double)c->lr_range_test_step_size;
    if (c->lr_range_test_staircase)
        interval = floor(interval);
    return min * (1 + c->lr_range_test_step_rate * interval);
}
