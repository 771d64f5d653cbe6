/* Warm-up, then constant, linear or cosine decay: one formula with DeepSpeed's key names. */
#include "optim/schedule.h"

enum schedule_type { WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR, CONSTANT, LINEAR, COSINE };

static const char *const type_words[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "constant",
                                         "linear",   "cosine",        NULL};
static const char *const warmup_words[] = {"linear", "log", NULL};
static const char *const compat_words[] = {"none", "deepspeed", NULL};

const struct opt schedule_opts[] = {
    ENUM(schedule_conf, type, "constant", type_words,
         "after the warm-up: constant = WarmupLR, linear = WarmupDecayLR, cosine = WarmupCosineLR"),
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
    ENUM(schedule_conf, compat, "none", compat_words,
         "deepspeed: its own step counting, whose first two steps use the minimum"),
    {.type = OPT_END},
};

static enum schedule_type shape_of(const struct schedule_conf *c)
{
    return c->type >= CONSTANT ? (enum schedule_type)(c->type - CONSTANT)
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
