/* Ranges of the flat arrays as pieces of named arrays. */
#include "train/save.h"

#include "train/precision.h"
#include <stdlib.h>

static void print_meta(const struct engine *e, const char *job_text, int64_t metrics_bytes,
                       const char *run_id, struct text *t)
{
    const struct run *r = e->run;
    text_printf(t,
                "{\"step\":%lld,\"epoch\":%lld,\"index\":%lld,\"samples\":%lld,\"tokens\":%lld,"
                "\"metrics_bytes\":%lld,\"micro_global\":%lld,\"accumulation\":%lld,\"world\":%d,"
                "\"seed\":%lld,\"skipped\":",
                (long long)e->step, (long long)e->epoch, (long long)e->index, (long long)e->samples,
                (long long)e->tokens, (long long)metrics_bytes, (long long)r->batching.micro_global,
                (long long)r->batching.accumulation, r->comm->size, (long long)r->conf.model.seed);
    if (e->has_scale)
        text_printf(t,
                    "%lld,\"loss_scale\":{\"scale\":%.17g,\"iter\":%lld,\"last_overflow\":%lld,"
                    "\"hysteresis\":%lld},\"run_id\":",
                    (long long)e->skipped, e->scale.scale, (long long)e->scale.iter,
                    (long long)e->scale.last_overflow, (long long)e->scale.hysteresis);
    else
        text_printf(t, "%lld,\"run_id\":", (long long)e->skipped);
    text_json_string(t, run_id);
    text_printf(t, ",\"dtypes\":");
    precision_to_json(&r->shard, t);
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
    text_printf(t, ",\"job\":");
    text_json_string(t, job_text);
    text_printf(t, "}");
}

int save_checkpoint(struct engine *e, const char *job_text, const char *run_id,
                    int64_t metrics_bytes)
{
    const struct run *r = e->run;
    struct arena *a = arena_create();
    struct run view = *r; /* its arrays live as long as this save */
    view.arena = a;
    int n_arrays;
    struct run_place *place;
    struct ckpt_array *arrays = run_arrays(&view, &n_arrays, &place);
    struct ckpt_piece *pieces = arena_alloc(a, sizeof *pieces * (size_t)n_arrays);
    int n_pieces = 0;
    /* replicas hold the same: the first of them writes */
    bool writes = !e->replicas || e->replicas->rank == 0;
    for (int i = 0; i < n_arrays && writes; i++) {
        struct shard_part p = shard_own_part(e->shard, place[i].array, place[i].row);
        if (p.begin < p.end)
            pieces[n_pieces++] =
                (struct ckpt_piece){.array = i, .begin = p.begin, .end = p.end, .values = p.values};
    }
    struct text meta = {0};
    print_meta(e, job_text, metrics_bytes, run_id, &meta);
    struct ckpt_save s = {.output_dir = r->conf.main.output_dir,
                          .step = e->step,
                          .run_id = run_id,
                          .keep = r->conf.ckpt.keep,
                          .arrays = arrays,
                          .n_arrays = n_arrays,
                          .pieces = pieces,
                          .n_pieces = n_pieces,
                          .meta = meta.s};
    int rc = ckpt_save(r->comm, &s);
    text_clear(&meta);
    arena_destroy(&a);
    return rc;
}

static int load_arrays(struct engine *e, const struct ckpt *k, bool weights_only)
{
    const struct run *r = e->run;
    int n;
    struct run_place *place;
    const struct ckpt_array *arrays = run_arrays(r, &n, &place);
    for (int i = 0; i < (weights_only ? r->model->table.n_rows : n); i++) {
        int at = ckpt_array_find(k, arrays[i].group, arrays[i].name);
        if (at < 0 && run_array_optional(&place[i]))
            continue;
        REQUIRE(at >= 0);
        struct shard_part p = shard_held_part(e->shard, place[i].array, place[i].row);
        if (p.begin < p.end)
            TRY(ckpt_read(k, at, p.begin, p.end, p.values));
    }
    if (e->shard->power_sgd)
        power_sgd_loaded(e->shard->power_sgd);
    return ERR_OK;
}

int save_load_weights(struct engine *e, const struct ckpt *k)
{
    return load_arrays(e, k, true);
}

int save_load(struct engine *e, const struct ckpt *k)
{
    TRY(load_arrays(e, k, false));
    const struct resume_point *p = &e->run->resume;
    e->step = e->averaged = p->step;
    e->epoch = p->epoch;
    e->index = p->index;
    e->samples = p->samples;
    e->tokens = p->tokens;
    e->skipped = p->skipped;
    if (p->has_scale)
        engine_take_scale(e, &p->scale);
    if (e->index >= e->run->batching.n_samples) {
        e->index = 0;
        e->epoch++;
    }
    return ERR_OK;
}
