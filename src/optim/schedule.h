/* Learning-rate schedules: the rate of optimizer step k = 1, 2, …  One step an optimizer step,
 * whatever the number of ranks. */
#pragma once
#include "job/opt.h"

struct schedule_conf {
    int type;
    int64_t warmup_num_steps;
    int64_t total_num_steps; /* OPT_AUTO_I64: the job's length */
    double warmup_min_lr;
    double warmup_max_lr; /* auto: the optimizer's lr */
    int warmup_type;      /* enum warmup_type */
    double warmup_min_ratio, cos_min_ratio, end_lr;
    /* OneCycle */
    double cycle_min_lr, cycle_max_lr; /* auto: a tenth of the peak; the optimizer's lr */
    int64_t cycle_first_step_size, cycle_second_step_size; /* second OPT_AUTO_I64: as first */
    int64_t cycle_first_stair_count, cycle_second_stair_count;
    int64_t decay_step_size;
    double decay_lr_rate, decay_mom_rate;
    bool cycle_momentum;
    double cycle_min_mom, cycle_max_mom;
    /* LRRangeTest */
    double lr_range_test_min_lr; /* auto: the optimizer's lr */
    int64_t lr_range_test_step_size;
    double lr_range_test_step_rate;
    bool lr_range_test_staircase;
    int compat; /* enum schedule_compat */
};
enum warmup_type { WARMUP_LINEAR, WARMUP_LOG };
enum schedule_compat { SCHEDULE_OURS, SCHEDULE_DEEPSPEED };

#define SCHEDULE_BETA_MAX 0.9999999

extern const struct opt schedule_opts[];

/* Rate of step k ≥ 1.  lr: the optimizer's; total: steps of the job where conf leaves it open.
 * Ours: warm-up reaches the maximum at step warmup_num_steps (step 1 is never wasted), the decay
 * reaches its end at step total.  compat = deepspeed: i = k - 2 in the formulas of DeepSpeed 0.19's
 * WarmupLR, WarmupDecayLR, WarmupCosineLR (i < 0: the minimum, or 0 for cosine).  Local. */
double schedule_lr(const struct schedule_conf *conf, double lr, int64_t k, int64_t total);

/* Does the schedule say the optimizer's betas of step k?  compat = deepspeed: begins with the least
 * momentum, and the second beta is 0.99.  second: the optimizer's own.  Local. */
bool schedule_betas(const struct schedule_conf *conf, int64_t k, double second, double betas[2]);

/* Why key has no effect under this type, NULL: it has one.  Local. */
const char *schedule_rests(const struct schedule_conf *conf, const char *key);

/* What is wrong between two keys: *key names the one to blame; NULL: nothing.  lr: the optimizer's.
 * Local. */
const char *schedule_check(const struct schedule_conf *conf, double lr, const char **key);
