/* From the job's strategy and plugin to a row of the strategy table; what rests is said. */
#include "train/strategy.h"

#include "train/idle.h"
#include "train/precision.h"
#include <stdio.h>
#include <string.h>

static int check_ranks(const struct run_conf *c, int n_ranks, int node_size)
{
    const struct strategy_conf *s = &c->strategy;
    int n_nodes = node_size > 0 ? (n_ranks + node_size - 1) / node_size : 0;
    if (n_nodes > 0 && s->num_machines != OPT_AUTO_I64 && s->num_machines != n_nodes)
        return job_error(c->job, "strategy", NULL, "num_machines", "%d node%s started", n_nodes,
                         n_nodes == 1 ? " was" : "s were");
    if (s->num_processes != OPT_AUTO_I64 && s->num_processes != n_ranks)
        return job_error(c->job, "strategy", NULL, "num_processes",
                         "%d rank%s started: say mpirun -n %lld stretto …, or srun --mpi=pmix -n "
                         "%lld stretto …",
                         n_ranks, n_ranks == 1 ? " was" : "s were", (long long)s->num_processes,
                         (long long)s->num_processes);
    if (s->distributed_type == TYPE_NO && n_ranks > 1)
        return job_error(c->job, "strategy", NULL, "distributed_type",
                         "NO is for one rank, but %d were started: say auto or MULTI_CPU, or start "
                         "one rank",
                         n_ranks);
    return ERR_OK;
}

void strategy_whole(int n_ranks, struct strategy *out)
{
    *out = (struct strategy){.policy = policy_find(n_ranks == 1 ? "NO" : "MULTI_CPU"),
                             .overlap = {.sums = true},
                             .n_ranks = n_ranks,
                             .group_size = n_ranks};
}

int strategy_keep_second(const struct run_conf *c, const struct plugin *p, const char *key,
                         int64_t n, struct strategy *out)
{
    if (n > out->group_size || out->group_size % n != 0)
        return job_error(c->job, "plugin", p->name, key,
                         "must divide the %d rank%s that share%s a copy of the model",
                         out->group_size, out->group_size == 1 ? "" : "s",
                         out->group_size == 1 ? "s" : "");
    out->second_size = (int)n;
    out->second_key = key;
    return ERR_OK;
}

/* LocalSGD: another row, in place of DDP's.  Weights are one on all ranks only behind an average,
 * so what looks at them has to fall on one. */
static int use_local_sgd(const struct run_conf *c, const struct plugin *p, struct strategy *out)
{
    int64_t every = c->strategy.local_sgd_steps;
    const struct {
        const char *section, *key;
        int64_t steps;
    } looks[] = {{"eval", "every_steps", c->eval.every_steps},
                 {"eval", "sample_every", c->eval.sample_every},
                 {"checkpoint", "every_steps", c->ckpt.every_steps}};
    if (p)
        return job_error(c->job, "strategy", NULL, "local_sgd_steps",
                         "goes with DDP (MULTI_CPU); FSDP and DEEPSPEED sum gradients every step");
    if (c->strategy.sync_each_batch)
        return job_error(c->job, "strategy", NULL, "sync_each_batch",
                         "means nothing with local_sgd_steps: ranks sum no gradients");
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        if (looks[i].steps % every != 0)
            return job_error(c->job, looks[i].section, NULL, looks[i].key,
                             "must be a multiple of [strategy] local_sgd_steps = %lld: between "
                             "averages every rank has weights of its own",
                             (long long)every);
    out->policy = policy_find("LOCAL_SGD");
    out->group_size = 1;
    return ERR_OK;
}

/* no_sync: the row with gradients that stay whole until the boundary, as ZeRO-1's do. */
static int use_no_sync(const struct run_conf *c, struct arena *a, struct strategy *out)
{
    if (c->strategy.sync_each_batch)
        return job_error(c->job, "strategy", NULL, "no_sync", "does not go with %s",
                         job_where(c->job, "strategy", NULL, "sync_each_batch"));
    if (!out->policy->shard_grads || c->strategy.gradient_accumulation_steps == 1)
        return ERR_OK;
    struct policy *row = arena_alloc(a, sizeof *row);
    *row = *out->policy;
    row->shard_grads = false;
    row->summary = arena_printf(a, "%s; gradients whole until the boundary", row->summary);
    out->policy = row;
    return ERR_OK;
}

/* A hook takes the place of DDP's one sum a step. */
static int check_hook(const struct run_conf *c, const struct strategy *s)
{
    const struct strategy_conf *k = &c->strategy;
    const char *why = NULL;
    if (k->comm_hook == HOOK_NO)
        return ERR_OK;
    if (s->policy->shard_optim || s->plugin || s->policy->averages)
        why = "goes with DDP (MULTI_CPU) alone";
    else if ((k->comm_hook == HOOK_FP16 && k->reduce_dtype == SUM_BF16) ||
             (k->comm_hook == HOOK_BF16 && k->reduce_dtype == SUM_FP16))
        why = "and reduce_dtype say different things; one of them is enough";
    else if (k->comm_hook == HOOK_POWER_SGD && k->sync_each_batch)
        why = "does not go with sync_each_batch: it sums once a step";
    else if (k->comm_hook == HOOK_POWER_SGD && k->mixed_precision == PRECISION_FP16)
        why = "does not go with fp16: an overflow would stay in the error that it feeds back";
    return why ? job_error(c->job, "strategy", NULL, "comm_hook", "%s", why) : ERR_OK;
}

int strategy_choose(const struct run_conf *c, int n_ranks, int node_size, struct arena *a,
                    struct strategy *out)
{
    const struct plugin *p = c->plugin;
    strategy_whole(n_ranks, out);
    TRY(check_ranks(c, n_ranks, node_size));
    if (!p && c->strategy.distributed_type == TYPE_MULTI_CPU)
        out->policy = policy_find("MULTI_CPU");
    if (c->strategy.local_sgd_steps > 0 && n_ranks > 1)
        TRY(use_local_sgd(c, p, out));
    if (!p)
        return check_hook(c, out);
    out->plugin = p->name ? p->name : "";
    TRY(p->type->use(c, p, node_size > 0 ? node_size : n_ranks, a, out));
    if (c->strategy.no_sync)
        TRY(use_no_sync(c, a, out));
    return check_hook(c, out);
}

static int check_ignored(const struct run_conf *c, const struct model *m, const struct strategy *s)
{
    const char *pattern = s->wrap.ignored, *name = s->plugin && *s->plugin ? s->plugin : NULL;
    int n = pattern ? plan_count_ignored(m, pattern) : 1;
    if (n < 0)
        return job_error(c->job, "plugin", name, "fsdp_ignored_modules",
                         "is no extended regular expression");
    if (n == 0)
        return job_error(c->job, "plugin", name, "fsdp_ignored_modules",
                         "is the path of no module: a tensor %s is of module %.*s, for one",
                         m->table.rows[0].name,
                         (int)(strrchr(m->table.rows[0].name, '.') - m->table.rows[0].name),
                         m->table.rows[0].name);
    return ERR_OK;
}

int strategy_fit(const struct run_conf *c, const struct model *m, struct strategy *s)
{
    int64_t width = plan_width(m);
    if (s->reduce_bucket == OPT_AUTO_I64)
        s->reduce_bucket = width * width;
    if (s->overlap.ahead_elems == OPT_AUTO_I64)
        s->overlap.ahead_elems = 9 * width * width / 10;
    if (s->wrap.persist_elems == OPT_AUTO_I64)
        s->wrap.persist_elems = 10 * width;
    TRY(check_ignored(c, m, s));
    for (const char *const *w = s->wrap.classes; w && *w; w++) {
        if (plan_has_class(m, *w))
            continue;
        struct text t = {0};
        plan_print_classes(m, &t);
        int rc = job_error(c->job, "plugin", s->plugin && *s->plugin ? s->plugin : NULL,
                           "fsdp_transformer_layer_cls_to_wrap",
                           "the model has no class %s; its classes are %s", *w, t.s);
        text_clear(&t);
        return rc;
    }
    return ERR_OK;
}

static void note_unused(const struct job *j, const char *kind, const char *used, const char *too,
                        struct text *out)
{
    int n;
    const char *const *names = job_names(j, kind, &n);
    for (int i = 0; i < n; i++)
        if (!(used && text_same(used, names[i])) && !(too && text_same(too, names[i])))
            text_printf(out, "note: [%s.%s] is not used\n", kind, names[i]);
}

void strategy_notes(const struct run_conf *c, const struct strategy *s, struct text *out)
{
    int n;
    const char *const *names = job_names(c->job, "plugin", &n);
    char section[128];
    for (int i = -1; i < n; i++) {
        const char *name = i < 0 ? "" : names[i];
        snprintf(section, sizeof section, i < 0 ? "plugin" : "plugin.%s", name);
        if (i < 0 && !job_has_section(c->job, "plugin"))
            continue;
        if (s->plugin && text_same(s->plugin, name))
            plugin_notes(c, c->plugin, out);
        else
            text_printf(out, "note: [%s] rests: the strategy is %s%s%s\n", section, s->policy->name,
                        s->plugin && *s->plugin ? " of plugin." : "", s->plugin ? s->plugin : "");
    }
    idle_notes(c, out);
    precision_notes(&c->strategy, out);
    if (c->strategy.no_sync && c->strategy.gradient_accumulation_steps == 1)
        text_printf(out, "note: [strategy] no_sync has no effect: a step is one micro-batch\n");
    else if (c->strategy.no_sync && !policy_find(s->policy->name)->shard_grads)
        text_printf(out, "note: [strategy] no_sync has no effect: %s sums once a step anyway\n",
                    s->policy->name);
    if (c->strategy.reduce_dtype != SUM_FP32 && (s->n_ranks == 1 || s->policy->averages))
        text_printf(out, "note: [strategy] reduce_dtype has no effect: %s\n",
                    s->n_ranks == 1 ? "one rank sums nothing over ranks"
                                    : "LocalSGD sums weights, in fp32, and no gradients");
    if (c->strategy.local_sgd_steps > 0 && s->n_ranks == 1)
        text_printf(out, "note: [strategy] local_sgd_steps has no effect on one rank\n");
    if (c->strategy.comm_hook != HOOK_NO && s->n_ranks == 1)
        text_printf(out, "note: [strategy] comm_hook has no effect on one rank\n");
    note_unused(c->job, "data", c->data.name, c->eval_data.name, out);
    note_unused(c->job, "optimizer", c->optim_name, NULL, out);
    note_unused(c->job, "scheduler", c->schedule_name, NULL, out);
}
