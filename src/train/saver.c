/* The policy of saving; save.c knows what a checkpoint of an engine is, ckpt/ how it is written. */
#include "train/saver.h"

#include "base/clock.h"
#include "base/memory.h"
#include "train/save.h"
#include <math.h>
#include <string.h>

/* Who keeps states on a disk has no memory for a copy of them, unless they say so. */
int saver_most_snapshots(const struct run *r)
{
    const struct ckpt_conf *c = &r->conf.ckpt;
    bool behind = c->async == ASYNC_TRUE || (c->async == ASYNC_AUTO && !r->shard.offload.dir);
    return behind && (c->every_steps > 0 || c->save_best) ? CKPT_MOST_SNAPSHOTS : 0;
}

/* Snapshots for which every node has room, beside all that its ranks were planned to hold. */
static int64_t count_room(const struct engine *e, int64_t n_bytes, int most)
{
    const struct comm *c = e->run->comm;
    double room = (double)memory_available(), n_here = c->node_size;
    double planned = n_here * (double)engine_bytes(e),
           held = n_here * (double)memory_use_now().anon;
    double still = planned > held ? planned - held : 0;
    int64_t n = 0;
    while (n < most && room - still >= (double)(n + 1) * n_here * (double)n_bytes)
        n++;
    return n;
}

/* Ranks that share a file: those of a node, in their order. */
static int choose_files(struct saver *s)
{
    const struct run *r = s->engine->run;
    const struct comm *c = r->comm;
    int64_t most = c->node_size;
    s->file_ranks = 1;
    if (r->conf.ckpt.shard_files != FILES_NODE)
        return ERR_OK;
    c->ops->max_i64(r->comm, &most, 1);
    s->file_ranks = (int)most;
    bool in_order = c->rank / most * most == c->node;
    return comm_agree(r->comm, in_order ? ERR_OK
                                        : job_error(r->conf.job, "checkpoint", NULL, "shard_files",
                                                    "rank %d's node begins with rank %d: ranks "
                                                    "must fill one node of %lld after another",
                                                    c->rank, c->node, (long long)most));
}

static void say(const struct saver *s, int64_t n_bytes, int most)
{
    const struct comm *c = s->engine->run->comm;
    char x[32];
    text_bytes(x, (double)n_bytes);
    if (s->n_snapshots > 0)
        comm_print(c, "save     in the background: %d snapshot%s of %s a rank", s->n_snapshots,
                   s->n_snapshots == 1 ? "" : "s", x);
    else if (most > 0)
        comm_print(c, "save     while training waits: there is no room for a snapshot of %s a rank",
                   x);
    else if (s->engine->run->conf.ckpt.every_steps > 0)
        comm_print(c, "save     while training waits");
}

int saver_open(struct saver *s, struct engine *e)
{
    struct run *r = e->run;
    int most = saver_most_snapshots(r);
    int64_t n_bytes = save_bytes(e);
    *s = (struct saver){.engine = e,
                        .saved_step = r->from ? r->resume.step : -1,
                        .save_s = -1,
                        .best_loss = r->resume.best_loss};
    TRY(choose_files(s));
    int64_t v[2] = {-count_room(e, n_bytes, most), n_bytes};
    r->comm->ops->max_i64(r->comm, v, 2);
    s->n_snapshots = (int)-v[0];
    s->snapshot_bytes = n_bytes;
    int rc = ERR_OK;
    char x[32];
    if (most > 0 && s->n_snapshots == 0 && r->conf.ckpt.async == ASYNC_TRUE)
        rc = err_set(ERR_RESOURCE,
                     "[checkpoint] async = true: there is no room for a snapshot of %s a rank",
                     text_bytes(x, (double)v[1]));
    if (rc == ERR_OK && s->n_snapshots > 0)
        rc = ckpt_background_create(r->comm, (size_t)n_bytes, s->n_snapshots, save_gather(e),
                                    &s->background);
    TRY_ALL(r->comm, rc);
    say(s, v[1], most);
    return ERR_OK;
}

void saver_close(struct saver *s)
{
    ckpt_background_destroy(&s->background);
    if (s->n_started > 0)
        s->saved_step = -1;
    s->n_started = 0;
}

size_t saver_bytes(const struct saver *s)
{
    return (size_t)s->n_snapshots * (size_t)s->snapshot_bytes;
}

bool saver_is_best(struct saver *s, double loss)
{
    if (!isfinite(loss) || (isfinite(s->best_loss) && loss >= s->best_loss))
        return false;
    s->best_loss = loss;
    return true;
}

/* A save has ended: say so; a failure is an error or a warning, as the job says. */
static int outcome(struct saver *s, int rc, int64_t step, double start_s)
{
    const struct run *r = s->engine->run;
    s->save_s = clock_now_s() - start_s;
    if (rc == ERR_OK) {
        metrics_say(s->metrics, r->comm, "saved %s/step-%08lld (%.2f s)", r->conf.main.output_dir,
                    (long long)step, s->save_s);
        return ERR_OK;
    }
    if (s->saved_step == step)
        s->saved_step = -1;
    if (r->conf.ckpt.on_save_error == SAVE_ERROR_STOP)
        return rc;
    metrics_say(s->metrics, r->comm, "warning: not saved, going on: %s", err_text());
    return ERR_OK;
}

static int poll(struct saver *s, bool wait)
{
    int64_t step;
    int rc = ckpt_background_poll(s->background, wait, &step);
    if (step < 0)
        return rc;
    double start_s = s->started_s[0];
    s->n_started--;
    memmove(s->started_s, s->started_s + 1, (size_t)s->n_started * sizeof *s->started_s);
    return outcome(s, rc, step, start_s);
}

int saver_poll(struct saver *s)
{
    return s->n_started > 0 ? poll(s, false) : ERR_OK;
}

int saver_finish(struct saver *s)
{
    while (s->n_started > 0)
        TRY(poll(s, true));
    return ERR_OK;
}

int saver_save(struct saver *s, enum save_when when, bool is_best)
{
    struct engine *e = s->engine;
    const struct ckpt_conf *c = &e->run->conf.ckpt;
    bool waits = when != SAVE_ON_THE_WAY;
    int type = when == SAVE_LAST ? c->final_type : c->state_dict_type;
    struct save_request q = {.job_text = s->job_text,
                             .run_id = s->run_id,
                             .metrics_bytes = s->metrics->n_bytes,
                             .type = (enum ckpt_type)type,
                             .file_ranks = s->file_ranks,
                             .best_loss = s->best_loss,
                             .is_best = is_best};
    if (waits)
        TRY(saver_finish(s));
    while (s->background && !waits && !ckpt_background_is_free(s->background))
        TRY(poll(s, true));
    bool behind = s->background && !waits;
    double start_s = clock_now_s();
    engine_settle(e);
    trace_begin(e->trace, TRACE_IO, behind ? "snapshot" : "checkpoint", NULL);
    int rc = save_checkpoint(e, &q, behind ? s->background : NULL);
    trace_end(e->trace, TRACE_IO);
    s->saved_step = e->step;
    if (!behind || rc != ERR_OK)
        return outcome(s, rc, e->step, start_s);
    s->started_s[s->n_started++] = start_s;
    return ERR_OK;
}
