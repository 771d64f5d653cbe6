/* Preflight: open data, build the model, plan it, count steps. */
#include "train/setup.h"

#include "parallel/recompute.h"
#include "train/init.h"
#include "train/precision.h"
#include <sched.h>
#include <string.h>
#include <unistd.h>

static int read_scale(const struct json *s, struct resume_point *p)
{
    if (!s)
        return ERR_OK;
    p->has_scale = true;
    TRY(json_get_f64(s, "scale", &p->scale.scale));
    TRY(json_get_i64(s, "iter", &p->scale.iter));
    TRY(json_get_i64(s, "last_overflow", &p->scale.last_overflow));
    return json_get_i64(s, "hysteresis", &p->scale.hysteresis);
}

int run_resume_point(const struct ckpt *k, struct arena *a, struct resume_point *p)
{
    const struct json *m = ckpt_meta(k);
    *p = (struct resume_point){.best_loss = NAN};
    TRY(json_get_i64(m, "step", &p->step));
    TRY(json_get_i64(m, "epoch", &p->epoch));
    TRY(json_get_i64(m, "index", &p->index));
    TRY(json_get_i64(m, "samples", &p->samples));
    TRY(json_get_i64(m, "tokens", &p->tokens));
    TRY(json_get_i64(m, "metrics_bytes", &p->metrics_bytes));
    TRY(json_get_i64(m, "micro_global", &p->micro_global));
    TRY(json_get_i64(m, "world", &p->world));
    TRY(json_get_string(m, "run_id", &p->run_id));
    TRY(json_get_string(m, "strategy", &p->strategy));
    TRY(json_get_string(m, "plan", &p->plan));
    p->local_world = p->world;
    if (json_get(m, "local_world"))
        TRY(json_get_i64(m, "local_world", &p->local_world));
    if (json_get(m, "best_loss"))
        TRY(json_get_f64(m, "best_loss", &p->best_loss));
    if (json_get(m, "skipped"))
        TRY(json_get_i64(m, "skipped", &p->skipped));
    TRY(read_scale(json_get(m, "loss_scale"), p));
    bool scale_bad = p->has_scale && !(p->scale.scale > 0 && isfinite(p->scale.scale));
    if (scale_bad || p->skipped < 0 || p->skipped > p->step || p->step < 0 || p->epoch < 0 ||
        p->index < 0 || p->micro_global < 1 || p->world < 1)
        FAIL(ERR_DATA, "%s: the manifest's counters are out of range", ckpt_dir(k));
    p->run_id = arena_strdup(a, p->run_id);
    p->strategy = arena_strdup(a, p->strategy);
    p->plan = arena_strdup(a, p->plan);
    return ERR_OK;
}

static int read_resume(struct run *r)
{
    r->resume.best_loss = NAN;
    return r->from ? run_resume_point(r->from, r->arena, &r->resume) : ERR_OK;
}

static int build_model(struct run *r)
{
    const struct run_conf *c = &r->conf;
    const char *key = "type";
    int rc =
        model_build(c->model_name ? c->model_name : "", c->family, c->family_conf,
                    c->lora.rank > 0 ? &c->lora : NULL, &r->data->shape, r->arena, &key, &r->model);
    if (rc != ERR_OK)
        return job_error(c->job, "model", c->model_name, key, "%s", err_text());
    TRY(groups_assign(c->job, &r->conf.groups, &r->model->table, r->arena));
    module_mark_still(r->model->root, &r->model->table);
    if (r->purpose == RUN_GENERATE)
        return ERR_OK;
    TRY(r->data->ops->cut(r->data, r->model->shape.T));
    if (!r->eval_data)
        return ERR_OK;
    const struct sample_shape *a = &r->data->shape, *b = &r->eval_data->shape;
    if (a->kind != b->kind || a->n_in != b->n_in || a->n_out != b->n_out || b->vocab > a->vocab)
        FAIL(ERR_DATA, "%s: its samples are not shaped like those of %s", c->eval_data.conf.path,
             c->data.conf.path);
    return r->eval_data->ops->cut(r->eval_data, r->model->shape.T);
}

const struct data *run_eval_source(const struct run *r, enum data_part *part)
{
    *part = r->eval_data ? DATA_TRAIN : DATA_EVAL;
    return r->eval_data ? r->eval_data : r->data;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static int count_steps(struct run *r, int n_ranks)
{
    const struct run_conf *c = &r->conf;
    struct batching *b = &r->batching;
    int64_t size = c->data.conf.batch_size;
    if (c->data.conf.split_batches && size < n_ranks)
        return job_error(c->job, "data", c->data.name, "batch_size",
                         "is shared by %d ranks (split_batches): at least one sample a rank",
                         n_ranks);
    b->micro_global = c->data.conf.split_batches ? size : size * n_ranks;
    bool other_world = r->from && !c->batch_is_fixed && r->resume.micro_global != b->micro_global;
    if (other_world && r->resume.world != n_ranks) {
        if (c->ckpt.on_world_change == WORLD_ERROR)
            return job_error(c->job, "checkpoint", NULL, "on_world_change",
                             "%s was written by %lld ranks, now there are %d", ckpt_dir(r->from),
                             (long long)r->resume.world, n_ranks);
        if (c->ckpt.on_world_change == WORLD_KEEP_GLOBAL)
            b->micro_global = r->resume.micro_global;
    }
    b->accumulation = c->strategy.gradient_accumulation_steps;
    b->n_samples = r->data->n_samples[DATA_TRAIN];
    b->max_local = ceil_div(b->micro_global, n_ranks);
    if (b->max_local > b->n_samples)
        b->max_local = b->n_samples;
    b->steps_per_epoch = ceil_div(b->n_samples, b->micro_global * b->accumulation);
    b->total_steps = c->main.max_steps;
    if (c->main.num_epochs != OPT_AUTO_I64) {
        int64_t left = (c->main.num_epochs - r->resume.epoch) * b->steps_per_epoch;
        /* at another global batch the rest of this epoch has other steps than it had */
        if (r->resume.index > 0)
            left += ceil_div(b->n_samples - r->resume.index, b->micro_global * b->accumulation) -
                    b->steps_per_epoch;
        int64_t by_epochs = r->resume.step + (left > 0 ? left : 0);
        if (b->total_steps == OPT_AUTO_I64 || by_epochs < b->total_steps)
            b->total_steps = by_epochs;
    }
    return ERR_OK;
}

struct array_list {
    const struct run *run;
    struct ckpt_array *array;
    struct run_place *place;
    int n;
};

static void add_array(struct array_list *l, const char *group, int array, int row)
{
    const struct tensor_row *t = &l->run->model->table.rows[row];
    struct ckpt_array x = {.group = group,
                           .name = t->name,
                           .shape = t->shape,
                           .dtype = DTYPE_F32,
                           .layout = t->layout,
                           .alias = t->alias};
    int64_t r;
    if (array >= SHARD_HOOK_ERROR &&
        !power_sgd_compresses(l->run->model, &l->run->shard.power_sgd, row, &r))
        return;
    if (array == SHARD_HOOK_Q) {
        x.shape = shape_make(2, r, t->shape.dim[1]);
        x.layout = "plain";
    }
    l->place[l->n] = (struct run_place){array, row};
    l->array[l->n++] = x;
}

struct ckpt_array *run_arrays(const struct run *r, int *n, struct run_place **place)
{
    const struct plan *p = r->plan;
    const struct power_sgd_conf *hook = &r->shard.power_sgd;
    size_t most = (size_t)(p->n_rows * (r->shard.n_states + 3) + 1);
    struct array_list l = {.run = r,
                           .array = arena_alloc(r->arena, sizeof *l.array * most),
                           .place = arena_alloc(r->arena, sizeof *l.place * most)};
    for (int i = 0; i < p->n_rows; i++)
        add_array(&l, "model", SHARD_MASTER, i);
    for (int k = 0; k < r->shard.n_states; k++) {
        const char *group = arena_printf(r->arena, "optim/%s", r->conf.optim_ops->state_names[k]);
        for (int i = 0; i < p->n_trained; i++)
            add_array(&l, group, SHARD_STATE + k, p->trained[i]);
    }
    for (int i = 0; hook->on && hook->use_error_feedback && i < p->n_trained; i++)
        add_array(&l, "power_sgd/error", SHARD_HOOK_ERROR, p->trained[i]);
    for (int i = 0; hook->on && hook->warm_start && i < p->n_trained; i++)
        add_array(&l, "power_sgd/q", SHARD_HOOK_Q, p->trained[i]);
    *n = l.n;
    if (place)
        *place = l.place;
    return l.array;
}

bool run_array_optional(const struct run_place *at)
{
    return at->array >= SHARD_HOOK_ERROR;
}

/* A LOCAL checkpoint is the memory of its ranks: others hold other parts. */
static int check_local(const struct run *r)
{
    if (r->purpose != RUN_TRAIN || ckpt_type_of(r->from) != CKPT_LOCAL)
        return ERR_OK;
    const struct resume_point *p = &r->resume;
    const char *plan = arena_printf(r->arena, "%016llx", (unsigned long long)plan_hash(r->plan));
    if (p->local_world == r->strategy.n_ranks && strcmp(p->plan, plan) == 0)
        return ERR_OK;
    FAIL(ERR_DATA,
         "%s is a LOCAL_STATE_DICT of %lld ranks under %s: training resumes from it only there, "
         "not on %d under %s or in other units; `stretto convert` makes another type of it",
         ckpt_dir(r->from), (long long)p->local_world, p->strategy, r->strategy.n_ranks,
         r->strategy.policy->name);
}

/* What a communication hook kept must fit where it is still wanted: left out, what it owes to the
 * gradients would be lost without a word. */
static int match_hook(const struct run *r, const struct ckpt_array *arrays, int n)
{
    static const char key[] = "comm_state_option.matrix_approximation_rank";
    const struct power_sgd_conf *hook = &r->shard.power_sgd;
    char has[128], wants[128];
    for (int i = 0; i < ckpt_n_arrays(r->from) && hook->on; i++) {
        const struct ckpt_array *x = ckpt_array_at(r->from, i), *fits = NULL;
        bool wanted = (hook->use_error_feedback && strcmp(x->group, "power_sgd/error") == 0) ||
                      (hook->warm_start && strcmp(x->group, "power_sgd/q") == 0);
        for (int e = 0; e < n && wanted; e++)
            if (strcmp(arrays[e].group, x->group) == 0 && strcmp(arrays[e].name, x->name) == 0)
                fits = &arrays[e];
        if (!wanted || (fits && shape_equal(&fits->shape, &x->shape)))
            continue;
        return job_error(
            r->conf.job, "strategy", NULL, key,
            "is not what %s was saved under: its %s/%s is %s, this run's %s; go on with that, "
            "or begin with its weights by model.init_from",
            ckpt_dir(r->from), x->group, x->name, shape_print(&x->shape, has, sizeof has),
            fits ? shape_print(&fits->shape, wants, sizeof wants) : "is not compressed");
    }
    return ERR_OK;
}

/* The checkpoint must be of this very model, and hold what this optimizer needs. */
static int match_checkpoint(struct run *r)
{
    if (!r->from)
        return ERR_OK;
    const struct json *weights_only = json_get(ckpt_meta(r->from), "weights_only");
    if (r->purpose == RUN_TRAIN && weights_only && weights_only->type == JSON_TRUE)
        FAIL(ERR_DATA,
             "%s holds weights only, there is nothing to go on with: begin with them by "
             "model.init_from, in another job.output_dir",
             ckpt_dir(r->from));
    TRY(check_local(r));
    int n, n_group;
    struct run_place *place;
    const struct ckpt_array *arrays = run_arrays(r, &n, &place);
    for (int i = 0; i < n; i += n_group) {
        for (n_group = 1; i + n_group < n && place[i + n_group].array == place[i].array;)
            n_group++;
        if (!run_array_optional(&place[i]))
            TRY(ckpt_match(r->from, arrays[i].group, arrays + i, n_group));
    }
    TRY(match_hook(r, arrays, n));
    if (r->purpose == RUN_TRAIN && r->resume.index > r->batching.n_samples)
        FAIL(ERR_DATA,
             "%s stopped at sample %lld of its epoch, but %s has only %lld: is it the "
             "same data?",
             ckpt_dir(r->from), (long long)r->resume.index, r->conf.data.conf.path,
             (long long)r->batching.n_samples);
    return ERR_OK;
}

/* Activation checkpointing.  A model that only evaluates keeps nothing anyway. */
static int mark_recomputed(struct run *r)
{
    const struct strategy_conf *s = &r->conf.strategy;
    const struct opt_strs *names = &s->activation_checkpointing_classes;
    const char **classes = arena_alloc(r->arena, sizeof *classes * (size_t)(names->n + 1));
    if (names->n > 0)
        memcpy(classes, names->v, sizeof *classes * (size_t)names->n);
    bool counted = s->activation_checkpointing_number != OPT_AUTO_I64;
    const struct recompute how = {.on = s->activation_checkpointing && r->purpose == RUN_TRAIN,
                                  .classes = names->n > 0 ? classes : NULL,
                                  .every = s->activation_checkpointing_every,
                                  .number = counted ? s->activation_checkpointing_number : 0};
    int rc = recompute_mark(r->model, &how, &r->n_recomputed);
    return rc == ERR_OK ? rc
                        : job_error(r->conf.job, "strategy", NULL,
                                    names->n > 0 ? "activation_checkpointing_classes"
                                                 : "activation_checkpointing",
                                    "%s", err_text());
}

/* One node that has gathered weights once gathers nothing that a second part could spare; several
 * can only have them once each if every one's ranks keep parts of the same whole. */
void run_share_node(const struct run *r, const struct node_shape *n, struct shard_conf *out)
{
    int k = r->strategy.second_size, group = r->strategy.group_size;
    bool copy = r->conf.strategy.unshard_copies == COPIES_NODE;
    out->node_ranks = n->fewest;
    out->node_memory =
        r->purpose == RUN_TRAIN && n->most > 1 && r->conf.strategy.node_memory != NODE_MEMORY_FALSE;
    bool spared = k == group || (out->node_memory && copy && n->fewest >= group);
    out->second_size = spared ? 0 : k;
    out->node_copy = copy && (out->second_size == 0 || (n->in_order && k % n->fewest == 0));
}

static struct power_sgd_conf power_sgd_of(const struct run *r)
{
    const struct strategy_conf *c = &r->conf.strategy;
    return (struct power_sgd_conf){.on = c->comm_hook == HOOK_POWER_SGD && r->strategy.n_ranks > 1,
                                   .matrix_approximation_rank = c->power_sgd_rank,
                                   .start_iter = c->power_sgd_start,
                                   .min_compression_rate = c->power_sgd_rate,
                                   .use_error_feedback = c->power_sgd_feedback,
                                   .warm_start = c->power_sgd_warm,
                                   .seed = (uint64_t)r->conf.model.seed};
}

int run_setup(const struct job *j, struct comm *c, enum run_purpose purpose, int plan_ranks,
              struct ckpt *from, struct arena *a, struct run *r)
{
    *r = (struct run){.purpose = purpose, .arena = a, .comm = c, .from = from};
    int n_ranks = plan_ranks ? plan_ranks : c->size;
    TRY(run_conf_read(j, purpose == RUN_TRAIN ? n_ranks : 0, a, &r->conf));
    if (purpose == RUN_TRAIN)
        TRY(strategy_choose(&r->conf, n_ranks, plan_ranks ? 0 : c->node_size, a, &r->strategy));
    else
        strategy_whole(n_ranks, &r->strategy);
    TRY(read_resume(r));
    TRY(run_open_data(r));
    TRY(build_model(r));
    TRY(count_steps(r, n_ranks));
    TRY(strategy_fit(&r->conf, r->model, &r->strategy));
    TRY(mark_recomputed(r));
    r->plan = plan_make(r->model, r->strategy.policy, &r->strategy.wrap, r->strategy.group_size, a);
    if (purpose == RUN_TRAIN)
        r->shard = (struct shard_conf){.reduce_bucket = r->strategy.reduce_bucket,
                                       .offload = r->strategy.offload,
                                       .n_states = r->conf.optim_ops->n_states(r->conf.optim_own),
                                       .average_every = r->conf.strategy.local_sgd_steps,
                                       .power_sgd = power_sgd_of(r),
                                       .sync_each_batch = r->conf.strategy.sync_each_batch &&
                                                          r->batching.accumulation > 1};
    r->shard.overlap = r->strategy.overlap;
    /* as far as one rank can tell; the engine asks the others */
    int here = plan_ranks                              ? 1
               : c->node_size < r->strategy.group_size ? c->node_size
                                                       : r->strategy.group_size;
    run_share_node(r, &(struct node_shape){here, here, true}, &r->shard);
    r->shard.compute = precision_compute(&r->conf.strategy);
    r->shard.reduce = precision_reduce(&r->conf.strategy);
    TRY(init_open(r));
    return match_checkpoint(r);
}

void run_clear(struct run *r)
{
    init_close(r);
    data_close(&r->eval_data); /* it borrows from the other */
    if (r->data && r->data->ops)
        data_close(&r->data);
    ckpt_close(&r->from);
}

size_t run_bytes(const struct run *r, const struct plan_memory *m)
{
    return shard_bytes(r->plan, r->model, &r->shard, 0) + m->tape_bytes + m->scratch_bytes +
           m->frame_bytes;
}

int run_threads(const struct run_conf *c, const struct comm *comm)
{
    if (c->main.threads != OPT_AUTO_I64)
        return (int)c->main.threads;
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int mine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    if (mine < online) /* bound: these cores are this rank's own */
        return mine;
    return mine / comm->node_size > 1 ? mine / comm->node_size : 1;
}
