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
    int compat; /* enum schedule_compat */
};
enum warmup_type { WARMUP_LINEAR, WARMUP_LOG };
enum schedule_compat { SCHEDULE_OURS, SCHEDULE_DEEPSPEED };

extern const struct opt schedule_opts[];

/* Rate of step k ≥ 1.  lr: the optimizer's; total: steps of the job where conf leaves it open.
 * Ours: warm-up reaches the maximum at step warmup_num_steps (step 1 is never wasted), the decay
 * reaches its end at step total.  compat = deepspeed: i = k - 2 in the formulas of DeepSpeed 0.19's
 * WarmupLR, WarmupDecayLR, WarmupCosineLR (i < 0: the minimum, or 0 for cosine).  Local. */
double schedule_lr(const struct schedule_conf *conf, double lr, int64_t k, int64_t total);
