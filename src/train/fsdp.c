/* FSDP's keys, both generations: a row of the strategy table, a way to wrap. */
#include "train/strategy.h"

#include "ckpt/ckpt.h"
#include "train/sections.h"
#include <stdlib.h>
#include <string.h>

struct fsdp_conf {
    int fsdp_sharding_strategy, fsdp_auto_wrap_policy, fsdp_backward_prefetch;
    int fsdp_state_dict_type;
    int64_t fsdp_version, fsdp_min_num_params, dp_shard_size;
    const char *fsdp_reshard_after_forward, *fsdp_ignored_modules;
    struct opt_strs fsdp_transformer_layer_cls_to_wrap;
    const char *fsdp_activation_checkpointing;
    bool fsdp_forward_prefetch, limit_all_gathers, fsdp_use_orig_params, fsdp_offload_params;
    bool fsdp_cpu_ram_efficient_loading, fsdp_sync_module_states;
};
static const char *const shard_words[] = {"FULL_SHARD",   "SHARD_GRAD_OP",      "NO_SHARD",
                                          "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", NULL};
static const enum prefetch prefetch_of[] = {PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE};
enum wrap_word { WORD_TRANSFORMER, WORD_SIZE, WORD_NONE };
static const char *const wrap_words[] = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP",
                                         NULL};
static const char *const prefetch_words[] = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", NULL};

static const struct opt fsdp_opts[] = {
    I64(fsdp_conf, fsdp_version, "2", 1, 2, "no effect: both generations give the same numbers"),
    ENUM(fsdp_conf, fsdp_sharding_strategy, "FULL_SHARD", shard_words,
         "what is sharded, and where"),
    STR(fsdp_conf, fsdp_reshard_after_forward, NULL,
        "true: FULL_SHARD or HYBRID_SHARD, false: SHARD_GRAD_OP or HYBRID_SHARD_ZERO2, or such a "
        "word itself: fsdp_sharding_strategy in version 2's spelling; a number: as true, but so "
        "many neighbouring ranks, those of a node for one, keep a unit's weights after forward, "
        "each a part, and backward gathers among them alone (1: as false)"),
    I64_AUTO(fsdp_conf, dp_shard_size, "auto", 1, 1e6,
             "HYBRID_SHARD: ranks that share a copy; auto: those of a node"),
    ENUM(fsdp_conf, fsdp_auto_wrap_policy, "TRANSFORMER_BASED_WRAP", wrap_words,
         "units: the model's blocks, by size, or one"),
    STRS(fsdp_conf, fsdp_transformer_layer_cls_to_wrap, NULL,
         "class names to wrap; without it the model's own block"),
    STR(fsdp_conf, fsdp_ignored_modules, NULL,
        "regular expression over module paths (h.0.attn, wte): their parameters stay whole on "
        "every rank; gradients and moments are sharded as all others are"),
    I64(fsdp_conf, fsdp_min_num_params, "100000000", 1, 1e15,
        "SIZE_BASED_WRAP: parameters that make a unit"),
    ENUM(fsdp_conf, fsdp_backward_prefetch, "BACKWARD_PRE", prefetch_words,
         "backward gathers the next unit in front of a unit's computation, behind it, or when it "
         "is needed"),
    BOOL(fsdp_conf, fsdp_forward_prefetch, "false",
         "forward gathers the next unit in front of a unit's computation"),
    BOOL(fsdp_conf, limit_all_gathers, "true",
         "prefetch one unit, so that two are gathered at most; false: two units ahead"),
    BOOL(fsdp_conf, fsdp_offload_params, "false",
         "no effect on CPUs: parameters and the optimizer's step are in host memory in any case"),
    ENUM(fsdp_conf, fsdp_state_dict_type, "SHARDED_STATE_DICT", ckpt_type_words,
         "as state_dict_type of [checkpoint]"),
    BOOL(fsdp_conf, fsdp_use_orig_params, "true", "no effect: names and shapes stay in any case"),
    BOOL(fsdp_conf, fsdp_cpu_ram_efficient_loading, "true",
         "no effect: each rank makes and reads only what it holds in any case"),
    BOOL(fsdp_conf, fsdp_sync_module_states, "true",
         "no effect: first weights are equal on all ranks in any case"),
    STR(fsdp_conf, fsdp_activation_checkpointing, NULL,
        "activation_checkpointing of [strategy]: blocks keep their inputs only"),
    {.type = OPT_END},
};

enum { FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2 };

static const char reshard[] = "fsdp_reshard_after_forward";

/* Ranks that keep what leaves after forward; 0: the key is no such number. */
static int64_t reshard_size(const struct fsdp_conf *f)
{
    enum { DIGITS_MAX = 9 };
    const char *w = f->fsdp_reshard_after_forward;
    bool number = w && *w != '0' && strspn(w, "0123456789") == strlen(w);
    return number && strlen(w) <= DIGITS_MAX ? strtoll(w, NULL, 10) : 0;
}

/* What fsdp_reshard_after_forward says beside hybrid or plain sharding; -1: it is not set. */
static int resharding(const struct fsdp_conf *f, bool hybrid)
{
    const char *w = f->fsdp_reshard_after_forward;
    if (!w)
        return -1;
    for (int i = 0; shard_words[i]; i++)
        if (opt_word_same(shard_words[i], w))
            return i;
    int64_t n = reshard_size(f);
    bool yes = n > 1 || text_same(w, "true") || text_same(w, "yes");
    if (!yes && n == 0 && !text_same(w, "false") && !text_same(w, "no"))
        return -1;
    if (hybrid)
        return yes ? HYBRID_SHARD : HYBRID_SHARD_ZERO2;
    return yes ? FULL_SHARD : SHARD_GRAD_OP;
}

/* fsdp_reshard_after_forward stands for fsdp_sharding_strategy, in the resolved job too, which
 * would not be read back if its two keys said different things. */
static int adopt_sharding(const struct run_conf *c, const struct plugin *p)
{
    struct fsdp_conf *f = p->conf;
    if (!f->fsdp_reshard_after_forward)
        return ERR_OK;
    int way = resharding(f, f->fsdp_sharding_strategy >= HYBRID_SHARD);
    if (way < 0)
        return job_error(c->job, "plugin", p->name, reshard,
                         "must be true, false, a number of ranks (1 or more) or a word of "
                         "fsdp_sharding_strategy");
    const char *from = job_value(c->job, p->section, reshard) ? p->section : "plugin";
    TRY(job_adopt_as(c->job, from, reshard, shard_words[way], "plugin", p->name,
                     opt_find(fsdp_opts, "fsdp_sharding_strategy")));
    return job_read(c->job, "plugin", p->name, fsdp_opts, f);
}

static int check(const struct run_conf *c, const struct plugin *p)
{
    const struct fsdp_conf *f = p->conf;
    TRY(adopt_sharding(c, p));
    if (f->fsdp_offload_params && f->fsdp_sharding_strategy == NO_SHARD)
        return job_error(c->job, "plugin", p->name, "fsdp_offload_params",
                         "needs sharded parameters: does not go with %s",
                         job_where(c->job, "plugin", p->name, "fsdp_sharding_strategy"));
    return ERR_OK;
}

/* Keys that stand for others; files are the questionnaire's, unless someone says another type. */
static int adopt(struct run_conf *c, const struct plugin *p, int n_ranks, struct arena *a)
{
    static const char checkpointing[] = "fsdp_activation_checkpointing";
    static const char type[] = "fsdp_state_dict_type";
    (void)n_ranks;
    const struct opt *row = section_row("checkpoint", "state_dict_type", a);
    job_adopt_default(c->job, "checkpoint", NULL, row, "SHARDED_STATE_DICT");
    const char *from = job_value(c->job, p->section, type) ? p->section : "plugin";
    TRY(job_adopt(c->job, from, type, "checkpoint", NULL, row));
    from = job_value(c->job, p->section, checkpointing) ? p->section : "plugin";
    return job_adopt(c->job, from, checkpointing, "strategy", NULL,
                     section_row("strategy", "activation_checkpointing", a));
}

static int hybrid_group(const struct run_conf *c, const struct plugin *p, int n_ranks,
                        int node_size, int *size)
{
    const struct fsdp_conf *f = p->conf;
    bool given = f->dp_shard_size != OPT_AUTO_I64;
    int64_t n = given ? f->dp_shard_size : node_size;
    if (n > n_ranks || n_ranks % n != 0)
        return job_error(c->job, "plugin", p->name, "dp_shard_size",
                         "%d ranks are no whole number of groups of %lld%s", n_ranks, (long long)n,
                         given ? "" : " (the ranks of this node)");
    *size = (int)n;
    return ERR_OK;
}

static int use(const struct run_conf *c, const struct plugin *p, int node_size, struct arena *a,
               struct strategy *out)
{
    const struct fsdp_conf *f = p->conf;
    out->policy = policy_find(shard_words[f->fsdp_sharding_strategy]);
    out->overlap = (struct overlap){.backward = prefetch_of[f->fsdp_backward_prefetch],
                                    .forward = f->fsdp_forward_prefetch,
                                    .ahead = f->limit_all_gathers ? 1 : 2,
                                    .ahead_elems = INT64_MAX,
                                    .sums = true};
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
    out->wrap.ignored = f->fsdp_ignored_modules;
    if (out->policy->group == GROUP_NODE)
        TRY(hybrid_group(c, p, out->n_ranks, node_size, &out->group_size));
    int64_t second = reshard_size(f);
    return second > 1 ? strategy_keep_second(c, p, reshard, second, out) : ERR_OK;
}

/* Keys of one way to wrap or to shard, under another. */
static void notes(const struct run_conf *c, const struct plugin *p, struct text *out)
{
    const struct fsdp_conf *f = p->conf;
    const struct {
        const char *key, *of;
        bool acts;
    } rows[] = {
        {"fsdp_min_num_params", "fsdp_auto_wrap_policy = SIZE_BASED_WRAP",
         f->fsdp_auto_wrap_policy == WORD_SIZE},
        {"fsdp_transformer_layer_cls_to_wrap", "fsdp_auto_wrap_policy = TRANSFORMER_BASED_WRAP",
         f->fsdp_auto_wrap_policy == WORD_TRANSFORMER},
        {"dp_shard_size", "HYBRID_SHARD", f->fsdp_sharding_strategy >= HYBRID_SHARD},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *v = job_value(c->job, p->section, rows[i].key);
        const char *dflt = opt_find(fsdp_opts, rows[i].key)->dflt;
        if (!rows[i].acts && v && !(dflt && text_same(v, dflt))) /* a resolved job has them all */
            text_printf(out, "note: [%s] %s has no effect: it belongs to %s\n", p->section,
                        rows[i].key, rows[i].of);
    }
    if (reshard_size(f) == 1)
        text_printf(out, "note: [%s] %s = 1 keeps weights whole until backward, as false does\n",
                    p->section, reshard);
}

const struct plugin_type plugin_fsdp = {
    .name = "fsdp",
    .opts = fsdp_opts,
    .conf_bytes = sizeof(struct fsdp_conf),
    .family = TYPE_FSDP,
    .check = check,
    .adopt = adopt,
    .use = use,
    .notes = notes,
};
