/* DeepSpeed's ZeRO as rows of the strategy table. */
#include "train/deepspeed.h"

#include "train/strategy.h"
#include <limits.h>
#include <string.h>

static const char hpz[] = "zero_optimization.zero_hpz_partition_size";

/* nvme needs a folder, and both devices share one file. */
static int check_offload(const struct run_conf *c, const struct plugin *p)
{
    const struct deepspeed_conf *d = p->conf;
    static const char optimizer[] = "zero_optimization.offload_optimizer.nvme_path";
    static const char param[] = "zero_optimization.offload_param.nvme_path";
    if (d->block_size % OFFLOAD_ALIGN != 0)
        return job_error(c->job, "plugin", p->name, "aio.block_size",
                         "must be a multiple of %d, what disks read and write at least",
                         OFFLOAD_ALIGN);
    if (d->offload_optimizer == OFFLOAD_NVME && !d->optimizer_nvme)
        return job_error(
            c->job, "plugin", p->name, optimizer, "a folder must be given for %s",
            job_where(c->job, "plugin", p->name, "zero_optimization.offload_optimizer.device"));
    if (d->offload_param != OFFLOAD_NVME)
        return ERR_OK;
    if (!d->param_nvme)
        return job_error(
            c->job, "plugin", p->name, param, "a folder must be given for %s",
            job_where(c->job, "plugin", p->name, "zero_optimization.offload_param.device"));
    if (d->optimizer_nvme && strcmp(d->optimizer_nvme, d->param_nvme) != 0)
        return job_error(c->job, "plugin", p->name, param, "there is one file: not another than %s",
                         job_where(c->job, "plugin", p->name, optimizer));
    return ERR_OK;
}

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
    if (d->hpz_partition_size > 1 && d->stage != 3)
        return job_error(c->job, "plugin", name, hpz,
                         "needs sharded parameters, stage 3: does not go with %s",
                         job_where(c->job, "plugin", name, stage));
    return check_offload(c, p);
}

static void use_disk(const struct deepspeed_conf *d, struct strategy *out)
{
    bool states = d->offload_optimizer == OFFLOAD_NVME, params = d->offload_param == OFFLOAD_NVME;
    if (!states && !params)
        return;
    out->offload = (struct offload_conf){
        .dir = states ? d->optimizer_nvme : d->param_nvme,
        .tile_elems = (d->sub_group_size + BLOCK_ELEMS - 1) / BLOCK_ELEMS * BLOCK_ELEMS,
        .states = states,
        .master = d->stage < 3 || params,
        .read_ahead = d->pipeline_read,
        .write_behind = d->pipeline_write,
        .io_method = offload_methods[d->io_method],
        .block_bytes = d->block_size,
        .queue_depth = (int)d->queue_depth,
        .single_submit = d->single_submit,
        .overlap_events = d->overlap_events,
    };
}

static int use_groups(const struct run_conf *c, const struct plugin *p, struct strategy *out)
{
    const struct deepspeed_conf *d = p->conf;
    int64_t group = d->mics_shard_size;
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

static int use(const struct run_conf *c, const struct plugin *p, int node_size, struct arena *a,
               struct strategy *out)
{
    static const char *const stages[] = {"ZERO_0", "ZERO_1", "ZERO_2", "ZERO_3"};
    const struct deepspeed_conf *d = p->conf;
    use_disk(d, out);
    (void)node_size;
    (void)a;
    out->policy = policy_find(stages[d->stage]);
    out->reduce_bucket = d->reduce_bucket_size;
    out->overlap = (struct overlap){.backward = PREFETCH_PRE,
                                    .forward = true,
                                    .ahead = INT_MAX,
                                    .ahead_elems = d->prefetch_bucket_size,
                                    .sums = d->overlap_comm};
    out->wrap.persist_elems = d->persist_elems;
    out->wrap.persist_total = d->persist_total;
    out->wrap.reuse_elems = d->reuse_elems == OPT_AUTO_I64 ? (int64_t)1e9 : d->reuse_elems;
    out->wrap.live_elems = d->live_elems == OPT_AUTO_I64 ? (int64_t)1e9 : d->live_elems;
    TRY(use_groups(c, p, out));
    int64_t second = d->hpz_partition_size;
    return second > 1 ? strategy_keep_second(c, p, hpz, second, out) : ERR_OK;
}

static void note_offload(const struct plugin *p, const char *key, int device, const char *what,
                         struct text *out)
{
    if (device == OFFLOAD_CPU)
        text_printf(out,
                    "note: [%s] zero_optimization.%s.device = cpu has no effect on CPUs: %s in "
                    "host memory in any case\n",
                    p->section, key, what);
}

/* Keys that the job sets and whose help begins with those words. */
static void note_resting(const struct run_conf *c, const struct plugin *p, const char *begins,
                         const char *why, struct text *out)
{
    for (const struct opt *o = deepspeed_opts; o->type != OPT_END; o++)
        if (strncmp(o->help, begins, strlen(begins)) == 0 && job_value(c->job, p->section, o->name))
            text_printf(out, "note: [%s] %s has no effect: %s\n", p->section, o->name, why);
}

static void notes(const struct run_conf *c, const struct plugin *p, struct text *out)
{
    const struct deepspeed_conf *d = p->conf;
    bool nvme = d->offload_optimizer == OFFLOAD_NVME || d->offload_param == OFFLOAD_NVME;
    note_offload(p, "offload_optimizer", d->offload_optimizer, "optimizer states are", out);
    note_offload(p, "offload_param", d->offload_param, "parameters are", out);
    if (!nvme)
        note_resting(c, p, "nvme", "nothing is offloaded to nvme", out);
    else if (text_same(offload_methods[d->io_method], "thread"))
        note_resting(c, p, "nvme, io_uring", "aio.io_method is thread", out);
    if (d->stage != 3)
        note_resting(c, p, "stage 3", "it belongs to stage 3", out);
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
