/* DeepSpeed's ZeRO as rows of the strategy table. */
#include "train/deepspeed.h"

#include "train/strategy.h"
#include <string.h>

static int check(const struct run_conf *c, const struct plugin *p)
{
    static const char stage[] = "zero_optimization.stage";
    const struct deepspeed_conf *d = p->conf;
    const char *name = p->name;
    TRY(deepspeed_check_adopted(c, p));
    if (d->offload_optimizer != OFFLOAD_NONE && d->stage == 0)
        return job_error(c->job, "plugin", name, "zero_optimization.offload_optimizer.device",
                         "needs a sharded optimizer, stage 1 to 3: does not go with %s",
                         job_where(c->job, "plugin", name, stage));
    if (d->offload_param != OFFLOAD_NONE && d->stage != 3)
        return job_error(c->job, "plugin", name, "zero_optimization.offload_param.device",
                         "needs sharded parameters, stage 3: does not go with %s",
                         job_where(c->job, "plugin", name, stage));
    if (d->mics_shard_size != -1 && (d->stage != 3 || d->mics_shard_size == 0))
        return job_error(c->job, "plugin", name, "zero_optimization.mics_shard_size",
                         "is -1, or ranks of a group under stage 3: does not go with %s",
                         job_where(c->job, "plugin", name, stage));
    return ERR_OK;
}

static int use(const struct run_conf *c, const struct plugin *p, int node_size, struct arena *a,
               struct strategy *out)
{
    static const char *const stages[] = {"ZERO_0", "ZERO_1", "ZERO_2", "ZERO_3"};
    const struct deepspeed_conf *d = p->conf;
    int64_t group = d->mics_shard_size;
    (void)node_size;
    (void)a;
    out->policy = policy_find(stages[d->stage]);
    out->reduce_bucket = d->reduce_bucket_size;
    out->wrap.persist_elems = d->persist_elems;
    out->wrap.persist_total = d->persist_total;
    out->wrap.reuse_elems = d->reuse_elems == OPT_AUTO_I64 ? (int64_t)1e9 : d->reuse_elems;
    out->wrap.live_elems = d->live_elems == OPT_AUTO_I64 ? (int64_t)1e9 : d->live_elems;
    if (group == -1 || group == out->n_ranks)
        return ERR_OK;
    if (group > out->n_ranks || out->n_ranks % group != 0)
        return job_error(c->job, "plugin", p->name, "zero_optimization.mics_shard_size",
                         "%d ranks are no whole number of groups of %lld", out->n_ranks,
                         (long long)group);
    out->policy = policy_find("HYBRID_SHARD");
    out->group_size = (int)group;
    return ERR_OK;
}

static void notes(const struct run_conf *c, const struct plugin *p, struct text *out)
{
    const struct deepspeed_conf *d = p->conf;
    for (const struct opt *o = deepspeed_opts; o->type != OPT_END && d->stage != 3; o++)
        if (strncmp(o->help, "stage 3", 7) == 0 && job_value(c->job, p->section, o->name))
            text_printf(out, "note: [%s] %s has no effect: it belongs to stage 3\n", p->section,
                        o->name);
}

const struct plugin_type plugin_deepspeed = {
    .name = "deepspeed",
    .opts = deepspeed_opts,
    .conf_bytes = sizeof(struct deepspeed_conf),
    .family = TYPE_DEEPSPEED,
    .check = check,
    .adopt = deepspeed_adopt,
    .use = use,
    .notes = notes,
};
