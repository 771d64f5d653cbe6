/* Memory and hooks of a model's units. */
#include "parallel/shard.h"

#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

struct shard_unit {
    struct shard *shard;
    const struct plan_unit *plan;
    struct hooks hooks;
};

static size_t array_bytes(const struct plan *p)
{
    return (size_t)p->n_elem * sizeof(float);
}

static int n_arrays(const struct shard_conf *conf)
{
    return 2 + conf->n_states + conf->sync_each_batch;
}

size_t shard_bytes(const struct plan *plan, const struct shard_conf *conf)
{
    return array_bytes(plan) * (size_t)n_arrays(conf);
}

/* A unit's gradient is complete on this rank: sum it over the ranks; every rank keeps its part. */
static void unit_after_backward(void *self, struct pass *p)
{
    struct shard_unit *u = self;
    struct shard *s = u->shard;
    if (p->dry || !s->reduce_now)
        return;
    float *g = (s->micro ? s->micro : s->grad) + u->plan->begin;
    s->comm->ops->reduce_scatter(s->comm, g, u->plan->cut, s->reduce_scratch);
    if (!s->micro)
        return;
    int64_t begin = u->plan->cut[s->comm->rank], end = u->plan->cut[s->comm->rank + 1];
    s->stream->k->accumulate(s->stream, s->grad + u->plan->begin + begin, g + begin, end - begin);
}

static void point_rows(struct shard *s)
{
    float *g = s->micro ? s->micro : s->grad;
    for (int r = 0; r < s->plan->n_rows; r++) {
        s->weight[r] = s->param + s->plan->place[r].begin;
        bool frozen = s->model->table.rows[r].flags & TENSOR_FROZEN;
        s->grad_of[r] = frozen ? NULL : g + s->plan->place[r].begin;
    }
}

static void hang_hooks(struct shard *s)
{
    for (int u = 0; u < s->plan->n_units; u++) {
        struct shard_unit *x = &s->unit[u];
        x->shard = s;
        x->plan = &s->plan->unit[u];
        x->hooks = (struct hooks){.after_backward = unit_after_backward, .self = x};
        x->plan->module->hooks = &x->hooks;
    }
}

static int alloc_array(struct shard *s, float **out)
{
    size_t n = array_bytes(s->plan);
    *out = s->stream->dev->mem->alloc(n);
    if (!*out)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of model state on rank %d", n, s->comm->rank);
    return ERR_OK;
}

static int alloc_all(struct shard *s, const struct shard_conf *conf)
{
    const struct plan *p = s->plan;
    TRY(alloc_array(s, &s->param));
    TRY(alloc_array(s, &s->grad));
    if (conf->sync_each_batch)
        TRY(alloc_array(s, &s->micro));
    for (int i = 0; i < conf->n_states; i++)
        TRY(alloc_array(s, &s->state[i]));
    int64_t longest = 0;
    for (int r = 0; r < p->n_rows; r++) {
        int64_t n = shape_elems(&s->model->table.rows[r].shape);
        longest = n > longest ? n : longest;
    }
    for (int u = 0; u < p->n_units; u++) {
        int64_t n = comm_reduce_scratch(s->comm, p->unit[u].cut);
        s->n_reduce_scratch = n > s->n_reduce_scratch ? n : s->n_reduce_scratch;
    }
    s->reduce_scratch = malloc((size_t)(s->n_reduce_scratch + 1) * sizeof(float));
    s->block_sum = malloc((size_t)(longest / BLOCK_ELEMS + 1) * sizeof(double));
    s->weight = calloc((size_t)p->n_rows + 1, sizeof *s->weight);
    s->grad_of = calloc((size_t)p->n_rows + 1, sizeof *s->grad_of);
    s->unit = calloc((size_t)p->n_units, sizeof *s->unit);
    if (!s->reduce_scratch || !s->block_sum || !s->weight || !s->grad_of || !s->unit)
        FAIL(ERR_RESOURCE, "no memory for the model's tables on rank %d", s->comm->rank);
    return ERR_OK;
}

int shard_create(const struct plan *plan, const struct model *m, const struct shard_conf *conf,
                 struct comm *c, struct stream *stream, struct shard **out)
{
    REQUIRE(plan->size == c->size);
    struct shard *s = calloc(1, sizeof *s);
    if (!s)
        FATAL("out of memory");
    *s = (struct shard){
        .plan = plan, .model = m, .comm = c, .stream = stream, .n_states = conf->n_states};
    int rc = alloc_all(s, conf);
    if (rc != ERR_OK) {
        shard_destroy(&s);
        return rc;
    }
    point_rows(s);
    hang_hooks(s);
    *out = s;
    return ERR_OK;
}

static void free_array(struct shard *s, float *p)
{
    if (p)
        s->stream->dev->mem->free(p, array_bytes(s->plan));
}

void shard_destroy(struct shard **shard)
{
    struct shard *s = *shard;
    if (!s)
        return;
    if (s->unit)
        for (int u = 0; u < s->plan->n_units; u++)
            s->plan->unit[u].module->hooks = NULL;
    free_array(s, s->param);
    free_array(s, s->grad);
    free_array(s, s->micro);
    for (int i = 0; i < OPTIM_MAX_STATES; i++)
        free_array(s, s->state[i]);
    free(s->reduce_scratch);
    free(s->block_sum);
    free(s->weight);
    free(s->grad_of);
    free(s->unit);
    free(s);
    *shard = NULL;
}

void shard_init(struct shard *s, uint64_t seed)
{
    for (int r = 0; r < s->plan->n_rows; r++) {
        const struct tensor_row *row = &s->model->table.rows[r];
        struct rng_key key = rng_key_make(seed, hash64_string(row->name));
        s->stream->k->fill(s->stream, s->param + s->plan->place[r].begin, &row->init, key, 0,
                           shape_elems(&row->shape));
    }
}

void shard_begin_step(struct shard *s)
{
    s->stream->dev->mem->zero(s->stream, s->grad, array_bytes(s->plan));
}

void shard_begin_micro(struct shard *s, bool last)
{
    s->reduce_now = last || s->micro;
    if (s->micro)
        s->stream->dev->mem->zero(s->stream, s->micro, array_bytes(s->plan));
}

void shard_end_micro(struct shard *s)
{
    s->reduce_now = false;
}

static bool decays(const struct tensor_row *row, enum decay_on on)
{
    return on == DECAY_ON_ALL || (row->flags & TENSOR_DECAY);
}

void shard_update(struct shard *s, const struct optim_ops *ops, const void *conf,
                  enum decay_on decay_on, const struct optim_step *st)
{
    const struct plan *p = s->plan;
    for (int u = 0; u < p->n_units; u++)
        s->comm->ops->all_gather(s->comm, s->grad + p->unit[u].begin, p->unit[u].cut,
                                 sizeof(float));
    for (int r = 0; r < p->n_rows; r++) {
        const struct tensor_row *row = &s->model->table.rows[r];
        if (row->flags & TENSOR_FROZEN)
            continue;
        struct optim_step own = *st;
        if (!decays(row, decay_on))
            own.weight_decay = 0;
        int64_t at = p->place[r].begin;
        float *state[OPTIM_MAX_STATES] = {0};
        for (int i = 0; i < s->n_states; i++)
            state[i] = s->state[i] + at;
        ops->update(conf, s->stream, s->param + at, s->grad + at, state,
                    shape_elems(&row->shape), &own);
    }
}
