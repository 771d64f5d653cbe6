/* One row a key, or a family of keys: who sets one of them expects something. */
#include "train/idle.h"

#include "train/plugin.h"
#include "train/sections.h"
#include <stdio.h>
#include <string.h>

struct idle {
    const struct section_kind *kind;
    const char *prefix; /* of the keys */
    bool idle;
    const char *why;
};

static void note(const struct run_conf *c, const char *section, const struct opt *o,
                 const char *why, struct text *out)
{
    const char *v = job_value(c->job, section, o->name);
    if (v && !(o->dflt && text_same(v, o->dflt))) /* a resolved job has all of them */
        text_printf(out, "note: [%s] %s has no effect: %s\n", section, o->name, why);
}

/* Keys of [strategy] may stand in the plugin in use, under the same name. */
static void note_row(const struct run_conf *c, const struct idle *x, struct text *out)
{
    for (const struct opt *o = x->kind->opts; o->type != OPT_END; o++) {
        if (strncmp(o->name, x->prefix, strlen(x->prefix)) != 0)
            continue;
        note(c, x->kind->name, o, x->why, out);
        if (x->kind == &kind_strategy && c->plugin)
            note(c, c->plugin->section, o, x->why, out);
    }
}

/* Keys of [scheduler], and of the plugin for it, that the schedule's type does not look at. */
static void note_schedule(const struct run_conf *c, struct text *out)
{
    char section[128], key[128];
    double betas[2];
    snprintf(section, sizeof section, c->schedule_name ? "scheduler.%s" : "scheduler",
             c->schedule_name);
    for (const struct opt *o = schedule_opts; o->type != OPT_END; o++) {
        const char *why = schedule_rests(&c->schedule, o->name);
        if (!why)
            continue;
        note(c, section, o, why, out);
        snprintf(key, sizeof key, "scheduler.params.%s", o->name);
        const struct opt in_plugin = {.name = key};
        if (c->plugin)
            note(c, c->plugin->section, &in_plugin, why, out);
    }
    if (!c->optim_ops->second_beta && schedule_betas(&c->schedule, 1, 0, betas))
        text_printf(out, "note: [%s] cycle_momentum has no effect: %s has no betas\n", section,
                    c->optim_ops->name);
}

void idle_notes(const struct run_conf *c, struct text *out)
{
    const struct strategy_conf *s = &c->strategy;
    const struct ckpt_conf *k = &c->ckpt;
    const struct idle rows[] = {
        {&kind_job, "profile_steps", !c->main.profile, "profile is false"},
        {&kind_strategy, "fp16.", s->mixed_precision != PRECISION_FP16,
         "mixed_precision is not fp16"},
        {&kind_strategy, "activation_checkpointing_", !s->activation_checkpointing,
         "activation_checkpointing is false"},
        {&kind_strategy, "comm_state_option.", s->comm_hook != HOOK_POWER_SGD,
         "comm_hook is not power_sgd"},
        {&kind_strategy, "unshard_copies", s->node_memory == NODE_MEMORY_FALSE,
         "node_memory is false"},
        {&kind_eval, "sample_tokens", c->eval.sample_every == 0, "sample_every is 0"},
        {&kind_checkpoint, "overwrite", k->resume != RESUME_NEVER, "resume is not never"},
        {&kind_checkpoint, "keep_every", k->keep == 0, "keep is 0, so that all stay"},
        {&kind_checkpoint, "async", k->every_steps == 0 && !k->save_best,
         "only the last step is saved, and training does not go on behind it"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].idle)
            note_row(c, &rows[i], out);
    note_schedule(c, out);
}
