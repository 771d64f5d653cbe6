/* Micro-steps, steps and evaluations of a model. */
#include "train/engine.h"

#include "base/hash.h"
#include "train/precision.h"

struct pass engine_pass(struct engine *e, bool training, int64_t step)
{
    uint64_t seed = (uint64_t)e->run->conf.model.seed;
    return (struct pass){
        .s = &e->stream,
        .tape = &e->tape,
        .frames = &e->frames,
        .compute = e->run->shard.compute,
        .output = precision_output(&e->run->conf.strategy),
        .training = training,
        .weight = e->shard->weight,
        .grad = e->shard->grad_of,
        .unset = e->shard->unset,
        .key = rng_key_make(seed, hash64(&step, sizeof step, 1)),
        .loss_sum = &e->loss_sum,
    };
}

/* Targets that count in this rank's own shares of w. */
static int64_t count_own(struct engine *e, const struct window *w)
{
    const struct comm *c = e->run->comm;
    int64_t micro = e->run->batching.micro_global, n = 0, begin, end;
    for (int64_t at = 0; at < w->n; at += micro) {
        sampler_share(w->n - at < micro ? w->n - at : micro, c->rank, c->size, &begin, &end);
        n += feed_count(&e->train, w->epoch, w->begin + at + begin, end - begin);
    }
    return n;
}

void engine_draw(struct engine *e, struct window *w)
{
    const struct batching *b = &e->run->batching;
    const struct comm *c = e->run->comm;
    int64_t most = b->micro_global * b->accumulation, left = b->n_samples - e->index;
    *w = (struct window){
        .epoch = e->epoch, .begin = e->index, .n = left < most ? left : most, .step = e->step + 1};
    w->n_micro = (w->n + b->micro_global - 1) / b->micro_global;
    /* each rank counts a share of the samples, whoever computes them */
    int64_t begin, end;
    sampler_share(w->n, c->rank, c->size, &begin, &end);
    w->n_valid = feed_count(&e->train, w->epoch, w->begin + begin, end - begin);
    int64_t control[2] = {w->n_valid, stop_wanted(&e->stop)};
    e->run->comm->ops->sum_i64(e->run->comm, control, 2);
    w->n_valid = control[0];
    w->stop = control[1] > 0;
    w->n_own = e->run->strategy.policy->averages ? count_own(e, w) : 0;
    e->loss_sum = 0;
    shard_begin_step(e->shard);
}

/* This rank's samples of micro-batch i. */
static const struct batch *micro_batch(struct engine *e, const struct window *w, int64_t i)
{
    const struct comm *c = e->run->comm;
    int64_t micro = e->run->batching.micro_global, at = i * micro, begin, end;
    sampler_share(w->n - at < micro ? w->n - at : micro, c->rank, c->size, &begin, &end);
    e->last_begin = w->begin + at + begin;
    e->last_n = end - begin;
    trace_begin(e->trace, TRACE_DATA, "batch", NULL);
    const struct batch *b = feed_fill(&e->train, w->epoch, e->last_begin, e->last_n);
    trace_end(e->trace, TRACE_DATA);
    return b;
}

/* What the loss of the step in hand is multiplied by. */
static double scale_now(const struct engine *e)
{
    return e->run->shard.compute == DTYPE_F16 ? e->scale.scale : 1;
}

static struct pass micro_pass(struct engine *e, const struct window *w)
{
    struct pass p = engine_pass(e, true, w->step);
    int64_t n = e->run->strategy.policy->averages ? w->n_own : w->n_valid;
    p.loss_scale = n > 0 ? (float)(scale_now(e) / (double)n) : 0;
    p.batch = &e->train.batch;
    return p;
}

void engine_forward(struct engine *e, const struct window *w, int64_t i)
{
    micro_batch(e, w, i);
    shard_begin_micro(e->shard, i == w->n_micro - 1);
    struct pass p = micro_pass(e, w);
    module_forward(e->run->model->root, &p, NULL, NULL);
}

void engine_backward(struct engine *e, const struct window *w, int64_t i)
{
    (void)i;
    struct pass p = micro_pass(e, w);
    module_backward(e->run->model->root, &p, NULL, NULL);
}

/* Run the window's forward passes again with checks, to name the first layer that went wrong. */
static int find_nan(struct engine *e, const struct window *w, double loss)
{
    int rc = ERR_OK;
    for (int64_t i = 0; i < w->n_micro && rc == ERR_OK; i++) {
        const struct batch *b = micro_batch(e, w, i);
        struct pass p = engine_pass(e, false, w->step);
        double before = 0;
        p.batch = b;
        p.check = true;
        p.loss_sum = &before;
        module_forward(e->run->model->root, &p, NULL, NULL);
        if (!p.bad && isfinite(before))
            continue;
        struct text ids = {0};
        for (int64_t k = 0; k < b->B && k < 8; k++)
            text_printf(&ids, "%s%lld", k ? ", " : "", (long long)b->sample[k]);
        rc = err_set(ERR_DIVERGED,
                     "step %lld: the loss is %g; first in layer \"%s\", rank %d, samples %s%s of "
                     "epoch %lld",
                     (long long)w->step, loss, p.bad && *p.bad ? p.bad : "loss", e->run->comm->rank,
                     ids.s ? ids.s : "", b->B > 8 ? ", …" : "", (long long)w->epoch);
        text_clear(&ids);
    }
    return rc;
}

static int diverged(struct engine *e, const struct window *w, double loss)
{
    TRY_ALL(e->run->comm, find_nan(e, w, loss));
    if (e->run->shard.compute == DTYPE_F16)
        FAIL(ERR_DIVERGED, "step %lld: the gradient overflows at the smallest loss scale, %g",
             (long long)w->step, e->scale.scale);
    FAIL(ERR_DIVERGED,
         "step %lld: the gradient is not finite although every layer's output is (loss %g): "
         "lower lr or set strategy.gradient_clipping",
         (long long)w->step, loss);
}

/* A step whose gradient or loss is not finite.  In fp16 the scale may be to blame. */
static int overflowed(struct engine *e, const struct window *w, double loss)
{
    if (e->run->shard.compute != DTYPE_F16)
        return diverged(e, w, loss);
    if (loss_scale_update(&e->scale, &e->run->conf.strategy.scale, true) != ERR_OK)
        return diverged(e, w, loss);
    e->skipped++;
    return ERR_OK;
}

static void count_step(struct engine *e, const struct window *w)
{
    e->step = w->step;
    e->samples += w->n;
    e->tokens += w->n_valid;
    e->index = w->begin + w->n;
    if (e->index >= e->run->batching.n_samples) {
        e->index = 0;
        e->epoch++;
    }
}

static void update(struct engine *e, int64_t t, double lr, double norm, double scale)
{
    const struct run_conf *c = &e->run->conf;
    double clip = c->strategy.gradient_clipping;
    double keep = clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1; /* torch's */
    struct optim_step st = {
        .t = t,
        .lr = lr,
        .weight_decay = c->optim.weight_decay,
        .grad_scale = (float)(keep / scale),
    };
    double betas[2];
    if (c->optim_ops->second_beta &&
        schedule_betas(&c->schedule, t, c->optim_ops->second_beta(c->optim_own), betas))
        st.betas = betas;
    trace_begin(e->trace, TRACE_COMPUTE, "optimizer", c->optim_ops->name);
    const struct groups_base base = {&c->optim, &c->schedule, e->run->batching.total_steps};
    groups_step(&c->groups, &e->run->model->table, &base, &st, e->row_step);
    shard_update(e->shard, c->optim_ops, c->optim_own, e->row_step);
    trace_end(e->trace, TRACE_COMPUTE);
}

int engine_step(struct engine *e, const struct window *w, struct step_report *out)
{
    const struct run_conf *c = &e->run->conf;
    double scale = scale_now(e);
    bool finite;
    trace_begin(e->trace, TRACE_COMPUTE, "gradient norm", NULL);
    shard_sum_by_hook(e->shard, w->step);
    double norm = shard_grad_norm(e->shard, &finite), sum = e->loss_sum;
    trace_end(e->trace, TRACE_COMPUTE);
    comm_sum_f64(e->run->comm, &sum, 1);
    double loss = w->n_valid > 0 ? sum / (double)w->n_valid : 0;
    int64_t t = w->step - e->skipped; /* skipped steps count neither for the rate nor for moments */
    double lr = schedule_lr(&c->schedule, c->optim.lr, t, e->run->batching.total_steps);
    *out = (struct step_report){
        .loss = loss, .lr = lr, .grad_norm = norm / scale, .loss_scale = scale};
    out->skipped = !finite || !isfinite(loss);
    if (out->skipped) {
        TRY(overflowed(e, w, loss));
    } else {
        update(e, t, lr, out->grad_norm, scale);
        if (e->shard->conf.offload.dir)
            TRY_ALL(e->run->comm, shard_disk_status(e->shard));
        if (c->strategy.mixed_precision == PRECISION_FP16)
            TRY(loss_scale_update(&e->scale, &c->strategy.scale, false));
    }
    count_step(e, w);
    engine_average(e);
    return ERR_OK;
}

void engine_eval(struct engine *e, int64_t n_batches, struct eval_report *out)
{
    struct comm *c = e->run->comm;
    int64_t micro = e->run->batching.micro_global, n = e->eval.sampler.n_samples;
    double loss = 0;
    int64_t counts[2] = {0}; /* valid targets, right answers */
    if (n_batches > 0 && n_batches * micro < n)
        n = n_batches * micro;
    int64_t stop = 0;
    for (int64_t at = 0; at < n && !stop; at += micro) {
        int64_t begin, end;
        sampler_share(n - at < micro ? n - at : micro, c->rank, c->size, &begin, &end);
        struct pass p = engine_pass(e, false, 0);
        p.batch = feed_fill(&e->eval, 0, at + begin, end - begin);
        p.loss_sum = &loss;
        p.n_correct = &counts[1];
        counts[0] += p.batch->n_valid;
        module_forward(e->run->model->root, &p, NULL, NULL);
        stop = stop_wanted(&e->stop);
        c->ops->max_i64(c, &stop, 1);
    }
    c->ops->sum_i64(c, counts, 2);
    comm_sum_f64(c, &loss, 1);
    bool classes = e->run->model->shape.kind == SAMPLE_CLASS;
    *out = (struct eval_report){
        .loss = counts[0] > 0 ? loss / (double)counts[0] : NAN,
        .accuracy = classes && counts[0] > 0 ? (double)counts[1] / (double)counts[0] : NAN,
        .n_valid = counts[0],
        .abandoned = stop != 0};
}
