/* What a run will do, in a few lines for a person. */
#include "parallel/lend.h"
#include "train/init.h"
#include "train/precision.h"

static void describe_data(const struct run *r, struct text *out)
{
    enum data_part part;
    const struct data *e = run_eval_source(r, &part);
    const struct sample_shape *s = &r->data->shape;
    text_printf(out, "data     %s: %s, %lld samples to train on, %lld to evaluate on",
                r->conf.data.conf.path, r->data->ops->name,
                (long long)r->data->n_samples[DATA_TRAIN], (long long)e->n_samples[part]);
    if (s->kind == SAMPLE_TOKENS)
        text_printf(out, "; %lld tokens each, vocabulary %lld", (long long)r->model->shape.T,
                    (long long)s->vocab);
    else if (s->kind == SAMPLE_CLASS)
        text_printf(out, "; %lld features, %lld classes", (long long)s->n_in, (long long)s->vocab);
    else
        text_printf(out, "; %lld features, %lld values", (long long)s->n_in, (long long)s->n_out);
    text_printf(out, "\n");
}

static void describe_scale(const struct loss_scale_conf *c, struct text *out)
{
    if (c->loss_scale > 0)
        text_printf(out, "scale    the loss is scaled by %g; an overflow skips a step\n",
                    c->loss_scale);
    else
        text_printf(out,
                    "scale    the loss is scaled by %g at first, twice that after %lld steps, half "
                    "after %lld overflow%s\n",
                    loss_scale_first(c).scale, (long long)c->loss_scale_window,
                    (long long)c->hysteresis, c->hysteresis == 1 ? "" : "s");
}

void run_note_second(const struct run *r, struct text *out)
{
    const struct strategy *s = &r->strategy;
    const char *section = s->second_size > 0 ? r->conf.plugin->section : NULL;
    if (s->second_size > 0 && s->second_size == s->group_size)
        text_printf(out, "note: [%s] %s has no effect: it is all ranks that share the model\n",
                    section, s->second_key);
    else if (s->second_size > 0 && r->shard.second_size == 0)
        text_printf(out,
                    "note: [%s] %s has no effect: the %d ranks that share the model are on one "
                    "node, which has gathered weights once (strategy.unshard_copies = node)\n",
                    section, s->second_key, s->group_size);
    else if (s->second_size > 0 && r->shard.node_memory && !r->shard.node_copy &&
             r->conf.strategy.unshard_copies == COPIES_NODE)
        text_printf(out,
                    "note: [strategy] unshard_copies is rank: the %d ranks of %s are no whole "
                    "nodes\n",
                    s->second_size, s->second_key);
}

void run_describe(const struct run *r, const struct device *dev, struct text *out)
{
    char buf[256], mem[32];
    const struct batching *b = &r->batching;
    struct plan_memory m;
    const struct plan_case c = {
        .B = b->max_local, .T = r->model->shape.T, .kind = PASS_TRAIN, .compute = r->shard.compute};
    plan_measure(r->model, dev, &c, &m);
    if (lend_can(r->plan->policy, &r->shard, b->accumulation)) {
        struct lend l;
        lend_plan(r->plan, r->model, dev, &c, m.tape_bytes, &l);
        m.tape_bytes = l.own_bytes;
    }
    text_printf(out, "job      %s, seed %lld, into %s\n", r->conf.main.name,
                (long long)r->conf.main.seed, r->conf.main.output_dir);
    text_printf(out, "model    %s%s%s: %lld parameters in %d tensors, %d unit%s",
                r->conf.model_name ? r->conf.model_name : "", r->conf.model_name ? ": " : "",
                r->conf.family->name, (long long)r->plan->n_params, r->plan->n_rows,
                r->plan->n_units, r->plan->n_units == 1 ? "" : "s");
    if (r->plan->n_train_params < r->plan->n_params)
        text_printf(out, "; %lld are trained", (long long)r->plan->n_train_params);
    text_printf(out, "\n");
    groups_describe(&r->conf.groups, &r->model->table, out);
    init_describe(r, out);
    describe_data(r, out);
    const struct strategy *s = &r->strategy;
    bool named = s->plugin && *s->plugin;
    text_printf(out, "strategy %s%s%s (%s), %d rank%s", named ? s->plugin : "", named ? ": " : "",
                s->policy->name, s->policy->summary, s->n_ranks, s->n_ranks == 1 ? "" : "s");
    if (s->policy->averages)
        text_printf(out, ", weights averaged every %lld steps", (long long)r->shard.average_every);
    else if (s->group_size != s->n_ranks)
        text_printf(out, ", sharded over groups of %d", s->group_size);
    if (r->shard.second_size > 0)
        text_printf(out, ", kept for backward in groups of %d", r->shard.second_size);
    text_printf(out, "\n");
    text_printf(out, "device   of each rank: %s\n", device_describe(dev, buf, sizeof buf));
    precision_describe(&r->shard, precision_output(&r->conf.strategy), out);
    if (r->shard.compute == DTYPE_F16)
        describe_scale(&r->conf.strategy.scale, out);
    if (r->n_recomputed > 0)
        text_printf(out,
                    "memory   %d module%s keep their inputs only and run forward again in "
                    "backward\n",
                    r->n_recomputed, r->n_recomputed == 1 ? "" : "s");
    text_printf(out, "batch    %lld samples = %lld a micro-batch of all ranks x %lld accumulated",
                (long long)(b->micro_global * b->accumulation), (long long)b->micro_global,
                (long long)b->accumulation);
    text_printf(out, "; %s a rank\n", text_bytes(mem, (double)run_bytes(r, &m)));
    if (r->shard.node_memory)
        text_printf(out, "node     ranks read each other's memory%s\n",
                    shard_keeps_node_copy(r->plan, &r->shard)
                        ? "; gathered weights are there once for all of them"
                        : "");
    text_printf(out, "length   %lld steps (%lld an epoch), %s, lr %g\n", (long long)b->total_steps,
                (long long)b->steps_per_epoch, r->conf.optim_ops->name, r->conf.optim.lr);
    run_note_second(r, out);
}
