/* Reading a job's sections and checking them against each other. */
#include "train/conf.h"

#include "train/plugin.h"
#include "train/sections.h"
#include <string.h>

static const char *const model_words[] = {"gpt2", "llama", "mlp", NULL};

static const struct opt model_opts[] = {
    ENUM(model_common_conf, type, "gpt2", model_words, "model family"),
    STR(model_common_conf, data, NULL, "name of the [data.NAME] to train on"),
    STR(model_common_conf, eval_data, NULL, "name of the [data.NAME] to evaluate on, all of it"),
    STR(model_common_conf, optimizer, NULL, "name of the [optimizer.NAME] to use"),
    STR(model_common_conf, scheduler, NULL, "name of the [scheduler.NAME] to use"),
    BOOL(model_common_conf, trainable, "true",
         "only true: it is the job's one model; [group.NAME] freezes tensors"),
    I64(model_common_conf, lora_rank, "0", 0, 65536,
        "LoRA: width of the adapters, which alone are trained; 0: none"),
    F64_AUTO(model_common_conf, lora_alpha, "auto", 0, 1e6,
             "LoRA: adapters count alpha / rank; auto: the rank, so 1"),
    F64(model_common_conf, lora_dropout, "0", 0, 0.99, "LoRA: share of an adapter's input dropped"),
    STRS(model_common_conf, lora_targets, NULL,
         "LoRA: linear layers that get one, by shell patterns; without it c_attn (gpt2), q_proj "
         "and v_proj (llama), all (mlp)"),
    STR_PATH(model_common_conf, init_from, NULL,
             "begin with these weights: a checkpoint, a folder of transformers', .safetensors, "
             "llama2.c's or llm.c's .bin"),
    STRS(model_common_conf, init_missing, NULL,
         "shell patterns of tensors that init_from may lack: they begin at random"),
    STRS(model_common_conf, init_unexpected, NULL,
         "shell patterns of tensors of init_from that are left out"),
    BOOL(model_common_conf, init_grow_vocab, "false",
         "init_from may have fewer tokens: the others begin at random"),
    I64_AUTO(model_common_conf, seed, "auto", 0, 9e15, "seed of this model; auto: the job's"),
    {.type = OPT_END},
};

static const struct section_kind kind_scheduler = {.name = "scheduler",
                                                   .may_be_named = true,
                                                   .opts = schedule_opts,
                                                   .help = "learning rate over the steps"};

static const struct section_kind *typed_kind(struct arena *a, const char *name,
                                             const struct opt *opts,
                                             const struct section_variant *v, const char *help)
{
    struct section_kind *k = arena_alloc(a, sizeof *k);
    *k = (struct section_kind){.name = name,
                               .may_be_named = true,
                               .opts = opts,
                               .type_key = "type",
                               .variants = v,
                               .help = help};
    return k;
}

enum { MAX_VARIANTS = 64 };

const struct section_kind *const *run_kinds(struct arena *a)
{
    struct section_variant *v[3];
    for (int i = 0; i < 3; i++)
        v[i] = arena_alloc(a, sizeof **v * MAX_VARIANTS);
    for (int i = 0; model_list[i] && i < MAX_VARIANTS - 1; i++)
        v[0][i] = (struct section_variant){model_list[i]->name, model_list[i]->opts};
    for (int i = 0; data_list[i] && i < MAX_VARIANTS - 1; i++)
        v[1][i] = (struct section_variant){data_list[i]->name, data_list[i]->opts};
    for (int i = 0; optim_list[i] && i < MAX_VARIANTS - 1; i++)
        v[2][i] = (struct section_variant){optim_list[i]->name, optim_list[i]->opts};
    const struct section_kind *model = typed_kind(a, "model", model_opts, v[0], "what is trained");
    const struct section_kind *data =
        typed_kind(a, "data", data_opts, v[1], "what it is trained on");
    const struct section_kind *optim = typed_kind(a, "optimizer", optim_opts, v[2], "update rule");
    const struct section_kind *const list[] = {
        &kind_job, model,           data,        &kind_strategy, plugin_kind(a),
        optim,     &kind_scheduler, &kind_group, &kind_eval,     &kind_checkpoint,
        NULL};
    const struct section_kind **out = arena_alloc(a, sizeof list);
    memcpy(out, list, sizeof list);
    return out;
}

const struct opt *section_row(const char *kind, const char *key, struct arena *a)
{
    const struct opt *o = NULL;
    for (const struct section_kind *const *k = run_kinds(a); *k && !o; k++) {
        if (strcmp((*k)->name, kind) != 0)
            continue;
        o = opt_find((*k)->opts, key);
        for (const struct section_variant *v = (*k)->variants; v && v->word && !o; v++)
            o = opt_find(v->opts, key);
    }
    REQUIRE(o);
    return o;
}

/* The section of a kind that key of the model names; without such a key the plain one or, if there
 * is none, the only named one. */
static int choose(const struct run_conf *c, const char *kind, const char *key, const char *named,
                  const char **out)
{
    const struct job *j = c->job;
    int n;
    const char *const *names = job_names(j, kind, &n);
    *out = named;
    if (!named) {
        if (!job_has_section(j, kind) && n == 1)
            *out = names[0];
        else if (!job_has_section(j, kind) && n > 1)
            return job_error(j, "model", c->model_name, key,
                             "there are %d [%s.NAME] sections: say which", n, kind);
        return ERR_OK;
    }
    for (int i = 0; i < n; i++)
        if (text_same(names[i], named))
            return ERR_OK;
    return job_error(j, "model", c->model_name, key, "there is no section [%s.%s]", kind, named);
}

static int read_lora(struct run_conf *c)
{
    const struct model_common_conf *m = &c->model;
    const char *lone = m->lora_targets.n > 0         ? "lora_targets"
                       : !opt_is_auto(m->lora_alpha) ? "lora_alpha"
                       : m->lora_dropout > 0         ? "lora_dropout"
                                                     : NULL;
    if (m->lora_rank == 0 && lone)
        return job_error(c->job, "model", c->model_name, lone,
                         "means nothing without lora_rank, the width of the adapters");
    c->lora =
        (struct lora){.rank = m->lora_rank,
                      .alpha = opt_is_auto(m->lora_alpha) ? (double)m->lora_rank : m->lora_alpha,
                      .dropout = m->lora_dropout,
                      .n_targets = m->lora_targets.n,
                      .target = m->lora_targets.v};
    return ERR_OK;
}

static int read_model(struct run_conf *c, struct arena *a)
{
    int n;
    const char *const *names = job_names(c->job, "model", &n);
    if (n > 1 || (n == 1 && job_has_section(c->job, "model")))
        FAIL(ERR_USAGE, "%s: [model.%s]: this version trains one model a job", job_file(c->job),
             names[n > 1 ? 1 : 0]);
    c->model_name = n == 1 ? names[0] : NULL;
    TRY(job_read(c->job, "model", c->model_name, model_opts, &c->model));
    if (!c->model.trainable)
        return job_error(c->job, "model", c->model_name, "trainable",
                         "a job trains one model so far, and this is it; [group.NAME] with frozen "
                         "= true freezes some of its tensors");
    c->family = model_list[c->model.type];
    REQUIRE(text_same(c->family->name, model_words[c->model.type]));
    c->family_conf = arena_alloc(a, c->family->conf_bytes);
    TRY(job_read(c->job, "model", c->model_name, c->family->opts, c->family_conf));
    return read_lora(c);
}

static int read_data(struct run_conf *c, struct arena *a, const char *name, struct data_choice *d)
{
    const char *key = "path";
    d->name = name;
    TRY(job_read(c->job, "data", name, data_opts, &d->conf));
    if (!d->conf.path)
        return job_error(c->job, "data", name, "path", "a file to train on must be given");
    int rc = data_type_of(&d->conf, &d->ops, &key);
    if (rc == ERR_USAGE)
        return job_error(c->job, "data", name, key, "%s", err_text());
    if (rc != ERR_OK)
        err_prefix("%s", job_where(c->job, "data", name, "path"));
    TRY(rc);
    for (const struct section_kind *const *k = run_kinds(a); *k; k++)
        if (strcmp((*k)->name, "data") == 0)
            TRY(job_check_type(c->job, *k, name, d->ops->name));
    d->own = arena_alloc(a, d->ops->conf_bytes);
    return job_read(c->job, "data", name, d->ops->opts, d->own);
}

/* With data of its own to evaluate on, nothing is held out: all of one is trained on, unless it
 * says otherwise, and all of the other evaluates. */
static int use_whole(struct run_conf *c)
{
    double split = c->eval_data.conf.split;
    if (!opt_is_auto(split) && split != 1)
        return job_error(c->job, "data", c->eval_data.name, "split",
                         "is all to evaluate on, as eval_data of [model]: say 1, or nothing");
    c->eval_data.conf.split = 1;
    if (opt_is_auto(c->data.conf.split))
        c->data.conf.split = 1;
    return ERR_OK;
}

static int read_both_data(struct run_conf *c, struct arena *a)
{
    const char *name;
    TRY(read_data(c, a, c->data.name, &c->data));
    if (!c->model.eval_data)
        return ERR_OK;
    TRY(choose(c, "data", "eval_data", c->model.eval_data, &name));
    TRY(read_data(c, a, name, &c->eval_data));
    if (c->eval_data.ops != c->data.ops)
        return job_error(c->job, "model", c->model_name, "eval_data",
                         "is of type %s, the training data of type %s", c->eval_data.ops->name,
                         c->data.ops->name);
    return use_whole(c);
}

static int read_optim(struct run_conf *c, struct arena *a)
{
    TRY(job_read(c->job, "optimizer", c->optim_name, optim_opts, &c->optim));
    c->optim_ops = optim_list[c->optim.type];
    c->optim_own = arena_alloc(a, c->optim_ops->conf_bytes);
    TRY(job_read(c->job, "optimizer", c->optim_name, c->optim_ops->opts, c->optim_own));
    const char *bad = c->optim_ops->check(c->optim_own);
    if (bad)
        return job_error(c->job, "optimizer", c->optim_name, bad,
                         strcmp(bad, "betas") == 0 ? "two numbers are needed"
                                                   : "needs momentum > 0 and dampening = 0");
    TRY(job_read(c->job, "scheduler", c->schedule_name, schedule_opts, &c->schedule));
    const char *key, *why = schedule_check(&c->schedule, c->optim.lr, &key);
    return why ? job_error(c->job, "scheduler", c->schedule_name, key, "%s", why) : ERR_OK;
}

int run_conf_model(const struct job *j, struct arena *a, struct run_conf *out)
{
    *out = (struct run_conf){.job = j};
    return read_model(out, a);
}

int run_conf_job(const struct job *j, struct job_conf *out)
{
    return job_read(j, "job", NULL, kind_job.opts, out);
}

/* Which sections the model uses, and its plugin, whose keys may stand for some of theirs. */
static int choose_sections(struct run_conf *c, int n_ranks, struct arena *a)
{
    if (c->model.eval_data && !c->model.data && !job_has_section(c->job, "data"))
        return job_error(c->job, "model", c->model_name, "data",
                         "must be given where eval_data is");
    TRY(choose(c, "data", "data", c->model.data, &c->data.name));
    TRY(choose(c, "optimizer", "optimizer", c->model.optimizer, &c->optim_name));
    TRY(choose(c, "scheduler", "scheduler", c->model.scheduler, &c->schedule_name));
    job_adopt_reset(c->job);
    TRY(plugin_find(c, a, &c->plugin));
    return c->plugin && c->plugin->type->adopt ? c->plugin->type->adopt(c, c->plugin, n_ranks, a)
                                               : ERR_OK;
}

int run_conf_read(const struct job *j, int n_ranks, struct arena *a, struct run_conf *c)
{
    *c = (struct run_conf){.job = j};
    TRY(run_conf_job(j, &c->main));
    TRY(read_model(c, a));
    TRY(job_read(j, "strategy", NULL, kind_strategy.opts, &c->strategy));
    TRY(choose_sections(c, n_ranks, a));
    /* again, with what the plugin's keys stand for */
    TRY(run_conf_job(j, &c->main));
    TRY(job_read(j, "strategy", NULL, kind_strategy.opts, &c->strategy));
    if (c->model.seed == OPT_AUTO_I64)
        c->model.seed = c->main.seed;
    TRY(read_both_data(c, a));
    TRY(read_optim(c, a));
    TRY(groups_read(j, a, &c->groups));
    TRY(job_read(j, "eval", NULL, kind_eval.opts, &c->eval));
    TRY(job_read(j, "checkpoint", NULL, kind_checkpoint.opts, &c->ckpt));
    c->ckpt.final_type = c->ckpt.final_state_dict_type > 0 ? c->ckpt.final_state_dict_type - 1
                                                           : c->ckpt.state_dict_type;
    if (c->main.profile_steps.n != 2)
        return job_error(j, "job", NULL, "profile_steps", "two numbers: the first step, how many");
    if (c->main.max_steps == OPT_AUTO_I64 && c->main.num_epochs == OPT_AUTO_I64)
        c->main.num_epochs = 1;
    return ERR_OK;
}
