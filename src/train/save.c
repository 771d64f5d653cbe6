/* Ranges of the flat arrays as pieces of named arrays. */
#include "train/save.h"

#include "train/precision.h"
#include <math.h>

/* Names of the classes by number, where they have names. */
static void print_classes(const struct data *d, struct text *t)
{
    for (int64_t i = 0; d->classes && i < d->shape.vocab; i++) {
        text_printf(t, i ? "," : ",\"classes\":[");
        text_json_string(t, d->classes[i]);
    }
    text_printf(t, d->classes ? "]" : "");
}

static void print_meta(const struct engine *e, const struct save_request *q, struct text *t)
{
    const struct run *r = e->run;
    text_printf(t,
                "{\"step\":%lld,\"epoch\":%lld,\"index\":%lld,\"samples\":%lld,\"tokens\":%lld,"
                "\"metrics_bytes\":%lld,\"micro_global\":%lld,\"accumulation\":%lld,\"world\":%d,"
                "\"seed\":%lld,\"skipped\":",
                (long long)e->step, (long long)e->epoch, (long long)e->index, (long long)e->samples,
                (long long)e->tokens, (long long)q->metrics_bytes,
                (long long)r->batching.micro_global, (long long)r->batching.accumulation,
                r->comm->size, (long long)r->conf.model.seed);
    if (e->has_scale)
        text_printf(t,
                    "%lld,\"loss_scale\":{\"scale\":%.17g,\"iter\":%lld,\"last_overflow\":%lld,"
                    "\"hysteresis\":%lld},\"run_id\":",
                    (long long)e->skipped, e->scale.scale, (long long)e->scale.iter,
                    (long long)e->scale.last_overflow, (long long)e->scale.hysteresis);
    else
        text_printf(t, "%lld,\"run_id\":", (long long)e->skipped);
    text_json_string(t, q->run_id);
    text_printf(t, ",\"dtypes\":");
    precision_to_json(&r->shard, precision_output(&r->conf.strategy), t);
    text_printf(t, ",\"name\":");
    text_json_string(t, r->conf.main.name);
    text_printf(t, ",\"strategy\":\"%s\",\"optimizer\":\"%s\",\"model\":", r->strategy.policy->name,
                r->conf.optim_ops->name);
    text_json_string(t, r->conf.family->name);
    const struct sample_shape *s = &r->model->shape;
    text_printf(t,
                ",\"shape\":{\"kind\":%d,\"T\":%lld,\"vocab\":%lld,\"n_in\":%lld,\"n_out\":%lld}",
                (int)s->kind, (long long)s->T, (long long)s->vocab, (long long)s->n_in,
                (long long)s->n_out);
    text_printf(t, ",\"vocab\":");
    if (r->data->vocab)
        vocab_to_json(r->data->vocab, t);
    else
        text_printf(t, "null");
    print_classes(r->data, t);
    text_printf(t, ",\"plan\":\"%016llx\"", (unsigned long long)plan_hash(r->plan));
    if (isfinite(q->best_loss))
        text_printf(t, ",\"best_loss\":%.17g", q->best_loss);
    text_printf(t, ",\"job\":");
    text_json_string(t, q->job_text);
    text_printf(t, "}");
}

/* This rank's parts of every array; *n of them.  Replicas hold the same: the first writes. */
static struct ckpt_piece *own_pieces(const struct engine *e, const struct run_place *place,
                                     int n_arrays, struct arena *a, int *n)
{
    struct ckpt_piece *pieces = arena_alloc(a, sizeof *pieces * (size_t)(n_arrays + 1));
    bool writes = !e->replicas || e->replicas->rank == 0;
    *n = 0;
    for (int i = 0; i < n_arrays && writes; i++) {
        struct shard_part p = shard_own_part(e->shard, place[i].array, place[i].row);
        if (p.begin < p.end)
            pieces[(*n)++] =
                (struct ckpt_piece){.array = i, .begin = p.begin, .end = p.end, .values = p.values};
    }
    return pieces;
}

/* The file of this rank and its neighbours: what they put there the plan tells. */
static struct ckpt_shared_file *share_file(const struct engine *e, int file_ranks,
                                           const struct run_place *place, int n_arrays,
                                           struct arena *a)
{
    struct ckpt_shared_file *f = arena_alloc(a, sizeof *f);
    int rank = e->group->rank, first = rank / file_ranks * file_ranks, next = first + file_ranks;
    next = next < e->group->size ? next : e->group->size;
    size_t most = (size_t)n_arrays * (size_t)(next - first);
    struct ckpt_piece *others = arena_alloc(a, (most + 1) * sizeof *others);
    bool writes = !e->replicas || e->replicas->rank == 0;
    *f = (struct ckpt_shared_file){
        .file = writes ? rank / file_ranks : -1, .makes = rank == first, .others = others};
    for (int i = 0; i < n_arrays && writes; i++)
        for (int r = first; r < next; r++) {
            struct shard_part p = shard_part_of(e->shard, place[i].array, place[i].row, r);
            if (r != rank && p.begin < p.end)
                others[f->n_others++] = (struct ckpt_piece){
                    .array = i, .begin = p.begin, .end = p.end, .shard = f->file};
        }
    return f;
}

int64_t save_bytes(const struct engine *e)
{
    struct arena *a = arena_create();
    struct run view = *e->run;
    view.arena = a;
    int n_arrays, n_pieces;
    struct run_place *place;
    run_arrays(&view, &n_arrays, &place);
    const struct ckpt_piece *p = own_pieces(e, place, n_arrays, a, &n_pieces);
    int64_t n_bytes = 0;
    for (int i = 0; i < n_pieces; i++)
        n_bytes += (p[i].end - p[i].begin) * (int64_t)sizeof(float);
    arena_destroy(&a);
    return n_bytes;
}

static void gather(void *self, void *to, const struct memory_span *span, int n)
{
    struct engine *e = self;
    e->dev->mem->gather(&e->stream, to, span, n);
}

struct ckpt_gather save_gather(struct engine *e)
{
    return (struct ckpt_gather){gather, e};
}

int save_checkpoint(struct engine *e, const struct save_request *q, struct ckpt_background *b)
{
    const struct run *r = e->run;
    const struct ckpt_conf *c = &r->conf.ckpt;
    struct arena *a = arena_create();
    struct run view = *r; /* its arrays live as long as this save */
    view.arena = a;
    int n_arrays, n_pieces;
    struct run_place *place;
    struct ckpt_array *arrays = run_arrays(&view, &n_arrays, &place);
    struct ckpt_piece *pieces = own_pieces(e, place, n_arrays, a, &n_pieces);
    int file_ranks = q->type == CKPT_SHARDED && q->file_ranks > 1 ? q->file_ranks : 1;
    for (int i = 0; i < n_pieces && q->type != CKPT_FULL; i++)
        pieces[i].shard = e->group->rank / file_ranks;
    struct text meta = {0};
    print_meta(e, q, &meta);
    struct ckpt_save s = {.output_dir = r->conf.main.output_dir,
                          .step = e->step,
                          .run_id = q->run_id,
                          .type = q->type,
                          .n_shards = (e->group->size + file_ranks - 1) / file_ranks,
                          .keep = c->keep,
                          .keep_every = c->keep_every,
                          .is_best = q->is_best,
                          .arrays = arrays,
                          .n_arrays = n_arrays,
                          .pieces = pieces,
                          .n_pieces = n_pieces,
                          .shared =
                              file_ranks > 1 ? share_file(e, file_ranks, place, n_arrays, a) : NULL,
                          .meta = arena_strdup(a, meta.s)};
    text_clear(&meta);
    if (b)
        return ckpt_background_save(b, &s, a);
    int rc = ckpt_save(r->comm, &s);
    arena_destroy(&a);
    return rc;
}

/* Read the own part of every array, then bring what others own and this rank holds too. */
static int load_arrays(struct engine *e, const struct ckpt *k, bool weights_only)
{
    const struct run *r = e->run;
    struct arena *a = arena_create();
    struct run view = *r;
    view.arena = a;
    int n, rc = ERR_OK;
    struct run_place *place;
    const struct ckpt_array *arrays = run_arrays(&view, &n, &place);
    for (int i = 0; i < (weights_only ? r->model->table.n_rows : n) && rc == ERR_OK; i++) {
        int at = ckpt_array_find(k, arrays[i].group, arrays[i].name);
        if (at < 0 && run_array_optional(&place[i]))
            continue;
        REQUIRE(at >= 0);
        /* what a communication hook keeps is as large as what it is for, on every rank */
        struct shard_part p = run_array_optional(&place[i])
                                  ? shard_held_part(e->shard, place[i].array, place[i].row)
                                  : shard_own_part(e->shard, place[i].array, place[i].row);
        if (p.begin < p.end)
            rc = ckpt_read_as(k, at, DTYPE_F32, p.begin, p.end, p.values);
    }
    arena_destroy(&a);
    TRY_ALL(r->comm, rc);
    shard_share(e->shard, SHARD_MASTER);
    for (int i = 0; i < e->shard->conf.n_states && !weights_only; i++)
        shard_share(e->shard, SHARD_STATE + i);
    if (e->shard->power_sgd)
        power_sgd_loaded(e->shard->power_sgd, r->resume.world);
    return ERR_OK;
}

int save_load_weights(struct engine *e, const struct ckpt *k)
{
    return load_arrays(e, k, true);
}

int save_load(struct engine *e, const struct ckpt *k)
{
    struct resume_point p;
    TRY_ALL(e->run->comm, run_resume_point(k, e->run->arena, &p));
    TRY(load_arrays(e, k, false));
    e->step = e->averaged = p.step;
    e->epoch = p.epoch;
    e->index = p.index;
    e->samples = p.samples;
    e->tokens = p.tokens;
    e->skipped = p.skipped;
    if (p.has_scale)
        engine_take_scale(e, &p.scale);
    if (e->index >= e->run->batching.n_samples) {
        e->index = 0;
        e->epoch++;
    }
    return ERR_OK;
}
