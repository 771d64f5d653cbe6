/* Warm-up, then constant, linear or cosine decay: one formula with DeepSpeed's key names.  And the
 * table of all schedules' keys. */
#include "optim/schedule.h"

#include "optim/cycle.h"
#include <string.h>

enum schedule_type {
    WARMUP_LR,
    WARMUP_DECAY_LR,
    WARMUP_COSINE_LR,
    CONSTANT,
    LINEAR,
    COSINE,
    ONE_CYCLE,
    LR_RANGE_TEST
};

static const char *const type_words[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR",
                                         "constant", "linear",        "cosine",
                                         "OneCycle", "LRRangeTest",   NULL};
static const char *const warmup_words[] = {"linear", "log", NULL};
static const char *const compat_words[] = {"none", "deepspeed", NULL};

const struct opt schedule_opts[] = {
    ENUM(schedule_conf, type, "constant", type_words,
         "after the warm-up: constant = WarmupLR, linear = WarmupDecayLR, cosine = WarmupCosineLR; "
         "OneCycle: up, down, and a decay; LRRangeTest: up for ever, to find the largest rate"),
    I64(schedule_conf, warmup_num_steps, "0", 0, 1e15, "optimizer steps until the peak rate"),
    I64_AUTO(schedule_conf, total_num_steps, "auto", 1, 1e15,
             "optimizer step at which the decay ends; auto: the job's last"),
    F64(schedule_conf, warmup_min_lr, "0", 0, 1e3, "rate from which the warm-up starts"),
    F64_AUTO(schedule_conf, warmup_max_lr, "auto", 0, 1e3, "peak; auto: the optimizer's lr"),
    ENUM(schedule_conf, warmup_type, "linear", warmup_words, "shape of the warm-up"),
    F64(schedule_conf, warmup_min_ratio, "0", 0, 1,
        "cosine: the warm-up starts at this share of the peak"),
    F64(schedule_conf, cos_min_ratio, "1e-4", 0, 1, "cosine: share of the peak at the end"),
    F64(schedule_conf, end_lr, "0", 0, 1e3, "linear: rate at the end"),
    F64_AUTO(schedule_conf, cycle_min_lr, "auto", 0, 1e3,
             "OneCycle: rate at both ends; auto: a tenth of the peak"),
    F64_AUTO(schedule_conf, cycle_max_lr, "auto", 0, 1e3,
             "OneCycle: peak; auto: the optimizer's lr"),
    I64(schedule_conf, cycle_first_step_size, "2000", 1, 1e15, "OneCycle: steps up"),
    I64_AUTO(schedule_conf, cycle_second_step_size, "auto", 1, 1e15,
             "OneCycle: steps down; auto: as many as up"),
    I64(schedule_conf, cycle_first_stair_count, "0", 0, 1e15,
        "OneCycle: stairs on the way up; 0: a slope"),
    I64_AUTO(schedule_conf, cycle_second_stair_count, "auto", 0, 1e15,
             "OneCycle: stairs on the way down; auto: as many as up"),
    I64(schedule_conf, decay_step_size, "0", 0, 1e15,
        "OneCycle: step behind the cycle by which the rate is min / (1 + decay_lr_rate); 0: it "
        "stays"),
    F64(schedule_conf, decay_lr_rate, "0", 0, 1e6, "OneCycle: see decay_step_size"),
    BOOL(schedule_conf, cycle_momentum, "true",
         "OneCycle: Adam's first beta goes down while the rate goes up, and back"),
    F64(schedule_conf, cycle_min_mom, "0.8", 0, SCHEDULE_BETA_MAX, "OneCycle: at the peak"),
    F64(schedule_conf, cycle_max_mom, "0.9", 0, SCHEDULE_BETA_MAX, "OneCycle: at both ends"),
    F64(schedule_conf, decay_mom_rate, "0", 0, 1e6,
        "OneCycle: behind the cycle it is max x (1 + decay_mom_rate x steps / decay_step_size), "
        "below 1"),
    F64_AUTO(schedule_conf, lr_range_test_min_lr, "auto", 0, 1e3,
             "LRRangeTest: first rate; auto: the optimizer's lr"),
    I64(schedule_conf, lr_range_test_step_size, "2000", 1, 1e15,
        "LRRangeTest: steps by which the rate has grown by lr_range_test_step_rate of the first"),
    F64(schedule_conf, lr_range_test_step_rate, "1", 0, 1e6, "LRRangeTest: see there"),
    BOOL(schedule_conf, lr_range_test_staircase, "false", "LRRangeTest: in stairs of such steps"),
    ENUM(schedule_conf, compat, "none", compat_words,
         "deepspeed: its own step counting, whose first two steps use the minimum; OneCycle: its "
         "betas, cycle_min_mom at the first step and 0.99"),
    {.type = OPT_END},
};

static enum schedule_type shape_of(const struct schedule_conf *c)
{
    return c->type >= CONSTANT && c->type <= COSINE ? (enum schedule_type)(c->type - CONSTANT)
                                                    : (enum schedule_type)c->type;
}

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double low_of(const struct schedule_conf *c, double max)
{
    return shape_of(c) == WARMUP_COSINE_LR && c->warmup_min_ratio > 0 ? max * c->warmup_min_ratio
                                                                      : c->warmup_min_lr;
}

/* Share of the way from the minimum to the peak after i of n warm-up steps. */
static double rise(const struct schedule_conf *c, double i, double n)
{
    return c->warmup_type == WARMUP_LOG ? clamp01(log(i + 1) / log(n + 1)) : clamp01(i / n);
}

static double after(const struct schedule_conf *c, double max, double share)
{
    const double pi = 3.14159265358979323846;
    double p = clamp01(share);
    switch (shape_of(c)) {
    case WARMUP_DECAY_LR:
        return c->end_lr + (max - c->end_lr) * (1 - p);
    case WARMUP_COSINE_LR:
        return max * (c->cos_min_ratio + (1 - c->cos_min_ratio) * (1 + cos(pi * p)) / 2);
    default:
        return max;
    }
}

/* DeepSpeed 0.19, lr_schedules.py: i = last_batch_iteration is -1 at first and grows after each
 * step, so step k computes with k - 2; the warm-up length is at least 2. */
static double deepspeed_lr(const struct schedule_conf *c, double max, int64_t k, int64_t total)
{
    double i = (double)(k - 2), n = (double)(c->warmup_num_steps < 2 ? 2 : c->warmup_num_steps);
    double T = (double)total, low = low_of(c, max);
    bool cosine = shape_of(c) == WARMUP_COSINE_LR;
    if (i < 0)
        return cosine ? 0 : low;
    if (i < n) {
        double up = c->warmup_type == WARMUP_LOG ? log(i + 1) / log(n) : i / n;
        return low + (max - low) * up;
    }
    double rest = T - n > 1 ? T - n : 1;
    if (cosine)
        return after(c, max, (i - n + 1) / rest);
    if (shape_of(c) == WARMUP_DECAY_LR)
        return low + (max - low) * clamp01((T - i) / rest);
    return max;
}

double schedule_lr(const struct schedule_conf *c, double lr, int64_t k, int64_t total)
{
    if (shape_of(c) == ONE_CYCLE)
        return cycle_one_lr(c, lr, k);
    if (shape_of(c) == LR_RANGE_TEST)
        return cycle_range_lr(c, lr, k);
    double max = opt_is_auto(c->warmup_max_lr) ? lr : c->warmup_max_lr;
    int64_t T = c->total_num_steps == OPT_AUTO_I64 ? total : c->total_num_steps;
    if (c->compat == SCHEDULE_DEEPSPEED)
        return deepspeed_lr(c, max, k, T);
    int64_t n = c->warmup_num_steps;
    if (k <= n) {
        double low = low_of(c, max);
        return low + (max - low) * rise(c, (double)k, (double)n);
    }
    return after(c, max, T > n ? (double)(k - n) / (double)(T - n) : 1);
}

bool schedule_betas(const struct schedule_conf *c, int64_t k, double second, double betas[2])
{
    if (shape_of(c) != ONE_CYCLE || !c->cycle_momentum)
        return false;
    betas[0] = cycle_one_momentum(c, k);
    betas[1] = c->compat == SCHEDULE_DEEPSPEED ? 0.99 : second;
    return true;
}

static bool begins(const char *key, const char *with)
{
    return strncmp(key, with, strlen(with)) == 0;
}

const char *schedule_rests(const struct schedule_conf *c, const char *key)
{
    enum schedule_type shape = shape_of(c);
    bool momentum = strcmp(key, "cycle_min_mom") == 0 || strcmp(key, "cycle_max_mom") == 0 ||
                    strcmp(key, "decay_mom_rate") == 0;
    if (strcmp(key, "type") == 0)
        return NULL;
    if (strcmp(key, "compat") == 0)
        return shape == LR_RANGE_TEST ? "LRRangeTest is DeepSpeed's own" : NULL;
    if (begins(key, "cycle_") || begins(key, "decay_"))
        return shape != ONE_CYCLE               ? "it belongs to OneCycle"
               : momentum && !c->cycle_momentum ? "cycle_momentum is false"
               : begins(key, "decay_") && strcmp(key, "decay_step_size") != 0 &&
                       c->decay_step_size == 0
                   ? "decay_step_size is 0"
                   : NULL;
    if (begins(key, "lr_range_test_"))
        return shape != LR_RANGE_TEST ? "it belongs to LRRangeTest" : NULL;
    if (shape >= ONE_CYCLE)
        return "it belongs to schedules with a warm-up";
    if (strcmp(key, "cos_min_ratio") == 0 || strcmp(key, "warmup_min_ratio") == 0)
        return shape != WARMUP_COSINE_LR ? "it belongs to cosine" : NULL;
    if (strcmp(key, "end_lr") == 0)
        return shape != WARMUP_DECAY_LR ? "it belongs to linear" : NULL;
    if (strcmp(key, "total_num_steps") == 0)
        return shape == WARMUP_LR ? "a constant rate has no end" : NULL;
    return NULL;
}

const char *schedule_check(const struct schedule_conf *c, double lr, const char **key)
{
    double max = opt_is_auto(c->cycle_max_lr) ? lr : c->cycle_max_lr;
    bool cycles = shape_of(c) == ONE_CYCLE;
    *key = "total_num_steps";
    if (!cycles && shape_of(c) != LR_RANGE_TEST && c->total_num_steps != OPT_AUTO_I64 &&
        c->total_num_steps < c->warmup_num_steps)
        return "is less than warmup_num_steps";
    *key = "cycle_min_lr";
    if (cycles && !opt_is_auto(c->cycle_min_lr) && c->cycle_min_lr > max)
        return "is more than the peak, cycle_max_lr or else the optimizer's lr";
    *key = "cycle_min_mom";
    if (cycles && c->cycle_momentum && c->cycle_min_mom > c->cycle_max_mom)
        return "is more than cycle_max_mom";
    return NULL;
}
