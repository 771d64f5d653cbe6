/* Prepare; for each batch forward, backward, step; evaluate, save, and stop when asked to. */
#include "train/loop.h"

#include "base/clock.h"
#include "base/memory.h"
#include "train/metrics.h"
#include "train/output.h"
#include "train/sample.h"
#include "train/saver.h"
#include <stdio.h>

struct loop {
    struct run *run;
    struct device *dev;
    struct engine *engine;
    struct metrics metrics;
    struct saver saver;
};

static bool every(int64_t step, int64_t n)
{
    return n > 0 && step % n == 0;
}

static int show_sample(struct loop *l)
{
    struct engine *e = l->engine;
    const struct sample_conf conf = {.tokens = l->run->conf.eval.sample_tokens,
                                     .temperature = 0.8,
                                     .seed = l->run->conf.model.seed};
    struct text t = {0};
    int rc = sample_text(e, &conf, &t, NULL);
    if (rc == ERR_OK)
        metrics_say(&l->metrics, e->run->comm, "--- sample at step %lld ---\n%s\n---",
                    (long long)e->step, t.s ? t.s : "");
    text_clear(&t);
    return rc;
}

static bool has_eval_data(const struct run *r)
{
    enum data_part part;
    const struct data *d = run_eval_source(r, &part);
    return d->n_samples[part] > 0;
}

/* What follows a step: evaluation, its line in the metrics, a sample, a checkpoint. */
static int after_step(struct loop *l, const struct step_report *s)
{
    struct engine *e = l->engine;
    const struct run_conf *c = &l->run->conf;
    bool last = e->step >= l->run->batching.total_steps;
    bool evaluate = has_eval_data(l->run) && (last || every(e->step, c->eval.every_steps));
    struct eval_report v = {0};
    double start_s = clock_now_s();
    if (evaluate)
        engine_eval(e, c->eval.batches, &v);
    metrics_apart(&l->metrics, clock_now_s() - start_s);
    bool whole = evaluate && !v.abandoned;
    TRY_ALL(l->run->comm, metrics_step(&l->metrics, e, s, whole ? &v : NULL));
    start_s = clock_now_s();
    if (every(e->step, c->eval.sample_every) && l->run->data->vocab)
        TRY(show_sample(l));
    bool is_best = whole && c->ckpt.save_best && saver_is_best(&l->saver, v.loss);
    if (last || is_best || every(e->step, c->ckpt.every_steps))
        TRY(saver_save(&l->saver, last ? SAVE_LAST : SAVE_ON_THE_WAY, is_best));
    metrics_apart(&l->metrics, clock_now_s() - start_s);
    return ERR_OK;
}

/* Everybody has agreed to stop.  A launcher that kills soon leaves no time for a save that would
 * take longer: the newest checkpoint is then what a resume begins with. */
static int stop(struct loop *l)
{
    struct comm *c = l->run->comm;
    struct saver *v = &l->saver;
    bool fits = stop_save_fits(stop_grace_s(&l->engine->stop), v->save_s);
    int64_t hurry = !fits || l->run->conf.main.on_stop == ON_STOP_DISCARD;
    c->ops->max_i64(c, &hurry, 1);
    if (hurry)
        saver_close(v);
    else
        TRY(saver_finish(v));
    if (!hurry && v->saved_step != l->engine->step)
        TRY(saver_save(v, SAVE_STOPPED, false));
    FAIL(ERR_STOPPED, "by %s at step %lld of %lld: %s; the same command goes on from there",
         stop_reason(&l->engine->stop), (long long)l->engine->step,
         (long long)l->run->batching.total_steps,
         v->saved_step == l->engine->step ? "saved" : "not saved since the last checkpoint");
}

/* Record the steps that are to be profiled, write them behind the last of them. */
static int profile(struct loop *l)
{
    struct engine *e = l->engine;
    const int64_t *range = l->run->conf.main.profile_steps.v;
    int64_t next = e->step + 1;
    if (!e->trace)
        return ERR_OK;
    trace_switch(e->trace, next >= range[0] && next - range[0] < range[1]);
    if (next != range[0] + range[1] && e->step != l->run->batching.total_steps)
        return ERR_OK;
    const char *path = arena_printf(l->run->arena, "%s/profile_%d.json",
                                    l->run->conf.main.output_dir, l->run->comm->rank);
    return trace_write(e->trace, path, l->run->comm->rank);
}

static int train(struct loop *l)
{
    struct engine *e = l->engine;
    struct window w;
    struct step_report report;
    while (e->step < l->run->batching.total_steps) {
        if (e->trace)
            TRY_ALL(l->run->comm, profile(l));
        TRY(saver_poll(&l->saver));
        engine_draw(e, &w);
        if (w.stop)
            return stop(l);
        for (int64_t i = 0; i < w.n_micro; i++) {
            engine_forward(e, &w, i);
            engine_backward(e, &w, i);
        }
        TRY_ALL(l->run->comm, err_fault(l->run->comm->rank, "step"));
        TRY(engine_step(e, &w, &report));
        TRY(after_step(l, &report));
    }
    return comm_agree(l->run->comm, profile(l));
}

/* What the run took at its peak, beside what the plan had said. */
static void say_memory(struct loop *l, const struct memory_use *before)
{
    struct memory_use now = memory_use_now();
    struct engine *e = l->engine;
    int64_t most[2] = {now.peak - now.file - now.shmem - before->anon};
    char x[32], y[32];
    if (e->node)
        most[1] = (int64_t)node_bytes_used(e->node);
    l->run->comm->ops->max_i64(l->run->comm, most, 2);
    if (now.peak > 0)
        metrics_say(
            &l->metrics, l->run->comm, "memory   %s a rank at the peak, %s planned",
            text_bytes(x, (double)most[0]),
            text_bytes(y, (double)(engine_bytes(e) + saver_bytes(&l->saver) + PLAN_LIBRARY_BYTES)));
    if (e->node)
        metrics_say(&l->metrics, l->run->comm, "memory   %s shared by a node, %s planned",
                    text_bytes(x, (double)most[1]), text_bytes(y, (double)engine_node_bytes(e)));
}

/* A run that diverges still finishes the saves of the good steps before. */
static void finish_saves(struct loop *l, int rc)
{
    char text[ERR_TEXT_BYTES];
    if (rc != ERR_DIVERGED)
        return;
    snprintf(text, sizeof text, "%s", err_text());
    (void)saver_finish(&l->saver);
    err_set(rc, "%s", text);
}

static int run_loop(struct loop *l, const char *job_text)
{
    struct run *r = l->run;
    struct memory_use before = memory_use_now();
    TRY(engine_create(r, l->dev, &l->engine));
    TRY(saver_open(&l->saver, l->engine));
    l->saver.metrics = &l->metrics;
    l->saver.job_text = job_text;
    TRY(output_prepare(r, job_text, &l->saver.run_id));
    TRY_ALL(r->comm, metrics_open(&l->metrics, r, r->resume.metrics_bytes, r->arena));
    stop_init(&l->engine->stop, r->conf.main.time_limit);
    int rc = train(l);
    if (rc == ERR_OK)
        say_memory(l, &before);
    finish_saves(l, rc);
    metrics_close(&l->metrics);
    return rc;
}

int loop_train(struct run *run, struct device *dev, const char *job_text)
{
    struct loop l = {.run = run, .dev = dev};
    if (run->from)
        comm_print(run->comm, "resume   %s: step %lld, %lld samples seen", ckpt_dir(run->from),
                   (long long)run->resume.step, (long long)run->resume.samples);
    if (run->from && ckpt_array_at(run->from, 0)->dtype != DTYPE_F32)
        comm_print(run->comm, "note: its weights are not as they were trained: %s",
                   dtype_name(ckpt_array_at(run->from, 0)->dtype));
    if (run->resume.step >= run->batching.total_steps) {
        comm_print(run->comm, "nothing to do: the run is finished (step %lld of %lld)",
                   (long long)run->resume.step, (long long)run->batching.total_steps);
        return ERR_OK;
    }
    int rc = run_loop(&l, job_text);
    saver_close(&l.saver);
    engine_destroy(&l.engine);
    return rc;
}
