/* Plugins: the keys of FSDP and DeepSpeed as rows of the strategy table. */
#include "train/strategy.h"

#include "train/sections.h"
#include <stdio.h>
#include <string.h>

enum plugin_type { PLUGIN_FSDP, PLUGIN_DEEPSPEED };
static const char *const plugin_words[] = {"fsdp", "deepspeed", NULL};

struct plugin_conf {
    int type;
};
static const struct opt plugin_opts[] = {
    ENUM(plugin_conf, type, "fsdp", plugin_words, "system whose keys the section has"),
    {.type = OPT_END},
};

struct fsdp_conf {
    int fsdp_sharding_strategy, fsdp_auto_wrap_policy, fsdp_backward_prefetch;
    int64_t fsdp_version, fsdp_min_num_params, dp_shard_size;
    struct opt_strs fsdp_transformer_layer_cls_to_wrap;
    bool fsdp_forward_prefetch, fsdp_use_orig_params;
    bool fsdp_cpu_ram_efficient_loading, fsdp_sync_module_states;
};
static const char *const shard_words[] = {"FULL_SHARD",   "SHARD_GRAD_OP",      "NO_SHARD",
                                          "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", NULL};
enum wrap_word { WORD_TRANSFORMER, WORD_SIZE, WORD_NONE };
static const char *const wrap_words[] = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP",
                                         NULL};
static const char *const prefetch_words[] = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", NULL};

static const struct opt fsdp_opts[] = {
    I64(fsdp_conf, fsdp_version, "2", 1, 2, "no effect: both generations give the same numbers"),
    ENUM(fsdp_conf, fsdp_sharding_strategy, "FULL_SHARD", shard_words,
         "what is sharded, and where"),
    I64_AUTO(fsdp_conf, dp_shard_size, "auto", 1, 1e6,
             "HYBRID_SHARD: ranks that share a copy; auto: those of a node"),
    ENUM(fsdp_conf, fsdp_auto_wrap_policy, "TRANSFORMER_BASED_WRAP", wrap_words,
         "units: the model's blocks, by size, or one"),
    STRS(fsdp_conf, fsdp_transformer_layer_cls_to_wrap, NULL,
         "class names to wrap; without it the model's own block"),
    I64(fsdp_conf, fsdp_min_num_params, "100000000", 1, 1e15,
        "SIZE_BASED_WRAP: parameters that make a unit"),
    ENUM(fsdp_conf, fsdp_backward_prefetch, "BACKWARD_PRE", prefetch_words,
         "no effect in this version: a unit is gathered when it is needed"),
    BOOL(fsdp_conf, fsdp_forward_prefetch, "false",
         "no effect in this version: a unit is gathered when it is needed"),
    BOOL(fsdp_conf, fsdp_use_orig_params, "true", "no effect: names and shapes stay in any case"),
    BOOL(fsdp_conf, fsdp_cpu_ram_efficient_loading, "true",
         "no effect: each rank makes and reads only what it holds in any case"),
    BOOL(fsdp_conf, fsdp_sync_module_states, "true",
         "no effect: first weights are equal on all ranks in any case"),
    {.type = OPT_END},
};

struct deepspeed_conf {
    int64_t stage;
};
static const struct opt deepspeed_opts[] = {
    I64_KEY("zero_optimization.stage", deepspeed_conf, stage, "2", 0, 3,
            "0: as DDP; 1: optimizer, 2: and gradients, 3: and parameters sharded"),
    {.type = OPT_END},
};

static const struct section_variant plugin_variants[] = {
    {"fsdp", fsdp_opts}, {"deepspeed", deepspeed_opts}, {.word = NULL}};

const struct section_kind kind_plugin = {.name = "plugin",
                                         .may_be_named = true,
                                         .opts = plugin_opts,
                                         .type_key = "type",
                                         .variants = plugin_variants,
                                         .help = "keys of the system named by type"};

/* One plugin section, read. */
struct plugin {
    const char *name; /* NULL: [plugin] */
    enum plugin_type type;
    struct fsdp_conf fsdp;
    struct deepspeed_conf deepspeed;
};

static int read_plugin(const struct job *j, const char *name, struct plugin *out)
{
    struct plugin_conf head;
    *out = (struct plugin){.name = name};
    TRY(job_read(j, "plugin", name, plugin_opts, &head));
    out->type = (enum plugin_type)head.type;
    if (out->type == PLUGIN_FSDP)
        return job_read(j, "plugin", name, fsdp_opts, &out->fsdp);
    return job_read(j, "plugin", name, deepspeed_opts, &out->deepspeed);
}

/* All plugin sections; *n of them. */
static int read_plugins(const struct job *j, struct arena *a, struct plugin **out, int *n)
{
    int n_names;
    const char *const *names = job_names(j, "plugin", &n_names);
    struct plugin *p = arena_alloc(a, sizeof *p * (size_t)(n_names + 1));
    *n = 0;
    if (job_has_section(j, "plugin"))
        TRY(read_plugin(j, NULL, &p[(*n)++]));
    for (int i = 0; i < n_names; i++)
        TRY(read_plugin(j, names[i], &p[(*n)++]));
    *out = p;
    return ERR_OK;
}

/* The plugin to use: the one that is named, or the only one of the wanted type; NULL: none. */
static int find_plugin(const struct run_conf *c, const struct plugin *p, int n,
                       const struct plugin **out)
{
    const struct strategy_conf *s = &c->strategy;
    enum plugin_type want = s->distributed_type == TYPE_FSDP ? PLUGIN_FSDP : PLUGIN_DEEPSPEED;
    bool any = s->distributed_type == TYPE_AUTO;
    int n_fit = 0;
    *out = NULL;
    for (int i = 0; i < n; i++) {
        if (s->plugin && p[i].name && text_same(p[i].name, s->plugin))
            *out = &p[i];
        else if (!s->plugin && !any && p[i].type == want && n_fit++ == 0)
            *out = &p[i];
    }
    if (s->plugin && !*out)
        return job_error(c->job, "strategy", NULL, "plugin", "there is no section [plugin.%s]",
                         s->plugin);
    if (n_fit > 1)
        return job_error(c->job, "strategy", NULL, "plugin", "must say which of %d plugins", n_fit);
    bool used = any || s->distributed_type == TYPE_FSDP || s->distributed_type == TYPE_DEEPSPEED;
    if (*out && !any && used && (*out)->type != want)
        return job_error(c->job, "plugin", (*out)->name, "type",
                         "distributed_type = %s does not go with a plugin of this type",
                         want == PLUGIN_FSDP ? "FSDP" : "DEEPSPEED");
    if (!used)
        *out = NULL;
    return ERR_OK;
}

static int hybrid_group(const struct run_conf *c, const struct plugin *p, int n_ranks,
                        int node_size, int *size)
{
    bool given = p->fsdp.dp_shard_size != OPT_AUTO_I64;
    int64_t n = given ? p->fsdp.dp_shard_size : node_size;
    if (n > n_ranks || n_ranks % n != 0)
        return job_error(c->job, "plugin", p->name, "dp_shard_size",
                         "%d ranks are no whole number of groups of %lld%s", n_ranks, (long long)n,
                         given ? "" : " (the ranks of this node)");
    *size = (int)n;
    return ERR_OK;
}

static int use_fsdp(const struct run_conf *c, const struct plugin *p, int node_size,
                    struct arena *a, struct strategy *out)
{
    const struct fsdp_conf *f = &p->fsdp;
    out->policy = policy_find(shard_words[f->fsdp_sharding_strategy]);
    if (f->fsdp_auto_wrap_policy == WORD_SIZE)
        out->wrap = (struct wrap){.kind = WRAP_SIZE, .min_params = f->fsdp_min_num_params};
    else if (f->fsdp_auto_wrap_policy == WORD_NONE)
        out->wrap.kind = WRAP_NONE;
    else if (f->fsdp_transformer_layer_cls_to_wrap.n > 0) {
        int n = f->fsdp_transformer_layer_cls_to_wrap.n;
        const char **list = arena_alloc(a, sizeof *list * (size_t)(n + 1));
        memcpy(list, f->fsdp_transformer_layer_cls_to_wrap.v, sizeof *list * (size_t)n);
        out->wrap = (struct wrap){.kind = WRAP_CLASSES, .classes = list};
    }
    if (out->policy->group == GROUP_NODE)
        TRY(hybrid_group(c, p, out->n_ranks, node_size, &out->group_size));
    return ERR_OK;
}

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
                             .n_ranks = n_ranks,
                             .group_size = n_ranks};
}

int strategy_choose(const struct run_conf *c, int n_ranks, int node_size, struct arena *a,
                    struct strategy *out)
{
    struct plugin *plugins;
    const struct plugin *p;
    int n;
    strategy_whole(n_ranks, out);
    TRY(check_ranks(c, n_ranks, node_size));
    TRY(read_plugins(c->job, a, &plugins, &n));
    TRY(find_plugin(c, plugins, n, &p));
    struct plugin *dflt = arena_alloc(a, sizeof *dflt);
    if (!p && c->strategy.distributed_type == TYPE_FSDP) {
        TRY(opt_defaults(fsdp_opts, &dflt->fsdp, a));
        p = dflt;
    } else if (!p && c->strategy.distributed_type == TYPE_DEEPSPEED) {
        TRY(opt_defaults(deepspeed_opts, &dflt->deepspeed, a));
        dflt->type = PLUGIN_DEEPSPEED;
        p = dflt;
    }
    if (!p && c->strategy.distributed_type == TYPE_MULTI_CPU)
        out->policy = policy_find("MULTI_CPU");
    if (!p)
        return ERR_OK;
    out->plugin = p->name ? p->name : "";
    if (p->type == PLUGIN_FSDP)
        return use_fsdp(c, p, node_size > 0 ? node_size : n_ranks, a, out);
    static const char *const stages[] = {"ZERO_0", "ZERO_1", "ZERO_2", "ZERO_3"};
    out->policy = policy_find(stages[p->deepspeed.stage]);
    return ERR_OK;
}

int strategy_check_classes(const struct run_conf *c, const struct strategy *s,
                           const struct model *m)
{
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

static void note_keys(const struct run_conf *c, const char *section, struct text *out)
{
    for (const struct opt *o = fsdp_opts; o->type != OPT_END; o++)
        if (strncmp(o->help, "no effect", 9) == 0 && job_value(c->job, section, o->name))
            text_printf(out, "note: [%s] %s has %s\n", section, o->name, o->help);
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
            note_keys(c, section, out);
        else
            text_printf(out, "note: [%s] rests: the strategy is %s%s%s\n", section,
                        s->policy->name, s->plugin && *s->plugin ? " of plugin." : "",
                        s->plugin ? s->plugin : "");
    }
    note_unused(c->job, "data", c->data.name, c->eval_data.name, out);
    note_unused(c->job, "optimizer", c->optim_name, NULL, out);
    note_unused(c->job, "scheduler", c->schedule_name, NULL, out);
}
