/* DeepSpeed's keys that stand for keys of other sections, auto, and its batch arithmetic
 * (features: batch = micro-batch x accumulation x ranks, any two give the third). */
#include "train/deepspeed.h"
#include "train/sections.h"

#include <stdio.h>
#include <string.h>

struct meaning {
    const char *key, *kind, *target;
};
static const struct meaning meanings[] = {
    {"train_micro_batch_size_per_gpu", "data", "batch_size"},
    {"gradient_accumulation_steps", "strategy", "gradient_accumulation_steps"},
    {"gradient_clipping", "strategy", "gradient_clipping"},
    {"steps_per_print", "job", "log_every"},
    {"fp16.loss_scale", "strategy", "fp16.loss_scale"},
    {"fp16.initial_scale_power", "strategy", "fp16.initial_scale_power"},
    {"fp16.loss_scale_window", "strategy", "fp16.loss_scale_window"},
    {"fp16.hysteresis", "strategy", "fp16.hysteresis"},
    {"fp16.consecutive_hysteresis", "strategy", "fp16.consecutive_hysteresis"},
    {"fp16.min_loss_scale", "strategy", "fp16.min_loss_scale"},
    {"activation_checkpointing.number_checkpoints", "strategy", "activation_checkpointing_number"},
    {"optimizer.type", "optimizer", "type"},
    {"optimizer.params.lr", "optimizer", "lr"},
    {"optimizer.params.weight_decay", "optimizer", "weight_decay"},
    {"optimizer.params.betas", "optimizer", "betas"},
    {"optimizer.params.eps", "optimizer", "eps"},
    {"optimizer.params.bias_correction", "optimizer", "bias_correction"},
    {"optimizer.params.momentum", "optimizer", "momentum"},
    {"optimizer.params.dampening", "optimizer", "dampening"},
    {"optimizer.params.nesterov", "optimizer", "nesterov"},
    {"scheduler.type", "scheduler", "type"},
    {"scheduler.params.warmup_min_lr", "scheduler", "warmup_min_lr"},
    {"scheduler.params.warmup_max_lr", "scheduler", "warmup_max_lr"},
    {"scheduler.params.warmup_num_steps", "scheduler", "warmup_num_steps"},
    {"scheduler.params.warmup_type", "scheduler", "warmup_type"},
    {"scheduler.params.total_num_steps", "scheduler", "total_num_steps"},
    {"scheduler.params.warmup_min_ratio", "scheduler", "warmup_min_ratio"},
    {"scheduler.params.cos_min_ratio", "scheduler", "cos_min_ratio"},
    {"scheduler.params.cycle_min_lr", "scheduler", "cycle_min_lr"},
    {"scheduler.params.cycle_max_lr", "scheduler", "cycle_max_lr"},
    {"scheduler.params.cycle_first_step_size", "scheduler", "cycle_first_step_size"},
    {"scheduler.params.cycle_second_step_size", "scheduler", "cycle_second_step_size"},
    {"scheduler.params.cycle_first_stair_count", "scheduler", "cycle_first_stair_count"},
    {"scheduler.params.cycle_second_stair_count", "scheduler", "cycle_second_stair_count"},
    {"scheduler.params.decay_step_size", "scheduler", "decay_step_size"},
    {"scheduler.params.decay_lr_rate", "scheduler", "decay_lr_rate"},
    {"scheduler.params.cycle_momentum", "scheduler", "cycle_momentum"},
    {"scheduler.params.cycle_min_mom", "scheduler", "cycle_min_mom"},
    {"scheduler.params.cycle_max_mom", "scheduler", "cycle_max_mom"},
    {"scheduler.params.decay_mom_rate", "scheduler", "decay_mom_rate"},
    {"scheduler.params.lr_range_test_min_lr", "scheduler", "lr_range_test_min_lr"},
    {"scheduler.params.lr_range_test_step_size", "scheduler", "lr_range_test_step_size"},
    {"scheduler.params.lr_range_test_step_rate", "scheduler", "lr_range_test_step_rate"},
    {"scheduler.params.lr_range_test_staircase", "scheduler", "lr_range_test_staircase"},
};
enum { N_MEANINGS = sizeof meanings / sizeof *meanings };

static const char *said(const struct run_conf *c, const struct plugin *p, const char *key)
{
    const char *v = job_value(c->job, p->section, key);
    return v || !p->name ? v : job_value(c->job, "plugin", key);
}

int deepspeed_check_adopted(const struct run_conf *c, const struct plugin *p)
{
    union { /* as large and as aligned as any field */
        struct opt_f64s numbers;
        struct opt_strs strings;
    } value;
    struct arena *a = arena_create();
    int rc = ERR_OK;
    for (int i = 0; i < N_MEANINGS && rc == ERR_OK; i++) {
        const char *v = said(c, p, meanings[i].key);
        if (!v || text_same(v, "auto"))
            continue;
        struct opt row = *section_row(meanings[i].kind, meanings[i].target, a);
        row.offset = 0;
        rc = opt_parse(&row, v, &value, a);
        if (rc != ERR_OK)
            err_prefix("%s", job_where(c->job, "plugin", p->name, meanings[i].key));
    }
    arena_destroy(&a);
    return rc;
}

/* The section of a kind that this model uses: NULL for the plain one. */
static const char *name_of(const struct run_conf *c, const char *kind)
{
    if (strcmp(kind, "optimizer") == 0)
        return c->optim_name;
    if (strcmp(kind, "scheduler") == 0)
        return c->schedule_name;
    return strcmp(kind, "data") == 0 ? c->data.name : NULL;
}

/* A parameter that this optimizer has not would stand for nothing. */
static int check_optimizer(const struct run_conf *c, const struct plugin *p)
{
    static const char prefix[] = "optimizer.params.";
    struct optim_conf optim;
    TRY(job_read(c->job, "optimizer", c->optim_name, optim_opts, &optim));
    const struct optim_ops *o = optim_list[optim.type];
    for (int i = 0; i < N_MEANINGS; i++) {
        const struct meaning *m = &meanings[i];
        if (strncmp(m->key, prefix, sizeof prefix - 1) != 0 || !said(c, p, m->key) ||
            opt_find(optim_opts, m->target) || opt_find(o->opts, m->target))
            continue;
        return job_error(c->job, "plugin", p->name, m->key, "the optimizer %s has no such key",
                         o->name);
    }
    const char *mode = said(c, p, "optimizer.params.adam_w_mode");
    const struct deepspeed_conf *d = p->conf;
    if (mode && text_same(o->name, d->adam_w_mode ? "Adam" : "AdamW"))
        return job_error(c->job, "plugin", p->name, "optimizer.params.adam_w_mode",
                         "the optimizer is %s: say optimizer.type = %s", o->name,
                         d->adam_w_mode ? "AdamW" : "Adam");
    return ERR_OK;
}

/* Defaults that come with a schedule that stands in the plugin. */
static void default_schedule(const struct run_conf *c, const struct plugin *p, struct arena *a)
{
    static const struct {
        const char *key, *target, *value;
    } dflt[] = {{"scheduler.params.warmup_num_steps", "warmup_num_steps", "1000"},
                {"scheduler.params.warmup_type", "warmup_type", "log"},
                {"scheduler.params.lr_range_test_min_lr", "lr_range_test_min_lr", "1e-3"}};
    for (size_t i = 0; i < sizeof dflt / sizeof *dflt; i++)
        if (!said(c, p, dflt[i].key))
            job_adopt_default(c->job, "scheduler", c->schedule_name,
                              section_row("scheduler", dflt[i].target, a), dflt[i].value);
}

static int no_multiple(const struct run_conf *c, const struct plugin *p, const char *of, int64_t n,
                       int64_t n_shares, const char *shares)
{
    return job_error(c->job, "plugin", p->name, "train_batch_size",
                     "is no multiple of %s %lld x %lld %s", of, (long long)n, (long long)n_shares,
                     shares);
}

static bool is_set(const struct run_conf *c, const char *kind, const char *name, const char *key)
{
    char section[128];
    snprintf(section, sizeof section, name ? "%s.%s" : "%s", kind, name);
    return job_value(c->job, section, key) || job_value(c->job, kind, key);
}

/* Of batch, micro-batch and accumulation two give the third. */
static int divide_batch(struct run_conf *c, const struct plugin *p, int n_ranks, struct arena *a)
{
    const struct deepspeed_conf *d = p->conf;
    struct data_conf data;
    struct strategy_conf s;
    TRY(job_read(c->job, "data", c->data.name, data_opts, &data));
    TRY(job_read(c->job, "strategy", NULL, kind_strategy.opts, &s));
    int64_t total = d->train_batch_size, gas = s.gradient_accumulation_steps;
    bool has_micro =
        d->micro_batch != OPT_AUTO_I64 || is_set(c, "data", c->data.name, "batch_size");
    bool has_gas = d->accumulation != OPT_AUTO_I64 ||
                   is_set(c, "strategy", NULL, "gradient_accumulation_steps");
    int64_t ranks = data.split_batches ? 1 : n_ranks, micro = data.batch_size * ranks;
    const char *who = data.split_batches ? "share" : "ranks";
    if (d->micro_batch != OPT_AUTO_I64 && data.split_batches)
        return job_error(c->job, "plugin", p->name, "train_micro_batch_size_per_gpu",
                         "counts one rank's samples: does not go with %s",
                         job_where(c->job, "data", c->data.name, "split_batches"));
    if (total == OPT_AUTO_I64 || n_ranks == 0)
        return ERR_OK;
    c->batch_is_fixed = true;
    if (has_micro && has_gas && total != micro * gas)
        return job_error(c->job, "plugin", p->name, "train_batch_size",
                         "is not micro-batch %lld x accumulation %lld x %lld %s = %lld",
                         (long long)data.batch_size, (long long)gas, (long long)ranks, who,
                         (long long)(micro * gas));
    if (has_micro && total % micro != 0)
        return no_multiple(c, p, "micro-batch", data.batch_size, ranks, who);
    if (has_micro) {
        const struct opt *row = section_row("strategy", "gradient_accumulation_steps", a);
        job_adopt_default(c->job, "strategy", NULL, row,
                          arena_printf(a, "%lld", (long long)(total / micro)));
        return ERR_OK;
    }
    if (total % (gas * ranks) != 0)
        return no_multiple(c, p, "accumulation", gas, ranks, who);
    job_adopt_default(c->job, "data", c->data.name, section_row("data", "batch_size", a),
                      arena_printf(a, "%lld", (long long)(total / (gas * ranks))));
    return ERR_OK;
}

/* The section in which a key of the plugin stands. */
static const char *section_of(const struct run_conf *c, const struct plugin *p, const char *key)
{
    return job_value(c->job, p->section, key) ? p->section : "plugin";
}

/* WORD.enabled: true stands for mixed_precision = WORD, false denies it. */
static int adopt_precision(const struct run_conf *c, const struct plugin *p, const char *word,
                           struct arena *a)
{
    const struct opt row = {.type = OPT_BOOL},
                     *target = section_row("strategy", "mixed_precision", a);
    const char *key = arena_printf(a, "%s.enabled", word), *v = said(c, p, key);
    const char *told = job_value(c->job, "strategy", "mixed_precision");
    bool on;
    if (!v || text_same(v, "auto"))
        return ERR_OK;
    int rc = opt_parse(&row, v, &on, a);
    if (rc != ERR_OK) {
        err_prefix("%s", job_where(c->job, "plugin", p->name, key));
        return rc;
    }
    if (on)
        return job_adopt_as(c->job, section_of(c, p, key), key, word, "strategy", NULL, target);
    if (told && text_same(told, word))
        return job_error(c->job, "plugin", p->name, key, "does not go with %s",
                         job_where(c->job, "strategy", NULL, "mixed_precision"));
    return ERR_OK;
}

int deepspeed_adopt(struct run_conf *c, const struct plugin *p, int n_ranks, struct arena *a)
{
    static const char number[] = "activation_checkpointing.number_checkpoints";
    for (int i = 0; i < N_MEANINGS; i++) {
        const struct meaning *m = &meanings[i];
        TRY(job_adopt(c->job, section_of(c, p, m->key), m->key, m->kind, name_of(c, m->kind),
                      section_row(m->kind, m->target, a)));
    }
    TRY(adopt_precision(c, p, "bf16", a));
    TRY(adopt_precision(c, p, "fp16", a));
    const char *sum = said(c, p, "communication_data_type");
    if (sum && !text_same(sum, "auto"))
        TRY(job_adopt_as(c->job, section_of(c, p, "communication_data_type"),
                         "communication_data_type", text_same(sum, "bfp16") ? "bf16" : sum,
                         "strategy", NULL, section_row("strategy", "reduce_dtype", a)));
    if (said(c, p, number))
        TRY(job_adopt_as(c->job, section_of(c, p, number), number, "true", "strategy", NULL,
                         section_row("strategy", "activation_checkpointing", a)));
    const char *clipping = said(c, p, "gradient_clipping");
    if (clipping && text_same(clipping, "auto"))
        job_adopt_default(c->job, "strategy", NULL, section_row("strategy", "gradient_clipping", a),
                          "1.0");
    if (said(c, p, "scheduler.type"))
        default_schedule(c, p, a);
    TRY(check_optimizer(c, p));
    return divide_batch(c, p, n_ranks, a);
}
