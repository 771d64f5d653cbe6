/* Memory of a model's state. */
#include "parallel/shard_impl.h"

#include "parallel/swap.h"
#include <stdlib.h>
#include <string.h>

static int take(struct shard *s, size_t n_bytes, void **out)
{
    *out = n_bytes ? s->stream->dev->mem->alloc(n_bytes) : NULL;
    if (n_bytes && !*out)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of model state on rank %d", n_bytes,
             s->comm->rank);
    return ERR_OK;
}

static int take_bytes(struct shard *s, size_t n_bytes, char **out)
{
    void *p = NULL;
    TRY(take(s, n_bytes, &p));
    *out = p;
    return ERR_OK;
}

static int take_f32(struct shard *s, size_t n_bytes, float **out)
{
    void *p = NULL;
    TRY(take(s, n_bytes, &p));
    *out = p;
    return ERR_OK;
}

/* Node memory is handed out page by page: the node's one part, and this rank's own. */
static void *take_node(char **at, size_t n_bytes)
{
    void *p = *at;
    *at += shard_pages(n_bytes);
    return n_bytes ? p : NULL;
}

static void place_in_node(struct shard *s)
{
    char *own = node_own(s->node), *shared = node_shared(s->node);
    struct shard_conf apart = s->conf;
    struct shard_memory z;
    apart.node_memory = false;
    shard_measure(s->plan, s->model, &apart, s->comm->rank, &z);
    s->has_node_copy = shard_keeps_node_copy(s->plan, &s->conf);
    char **once = s->has_node_copy ? &shared : &own;
    s->unit_grad_memory = take_node(&own, z.unit_grads);
    s->gathered_memory = take_node(once, z.gathered);
    if (s->row->shard_optim)
        s->copy = take_node(once, z.copy);
    if (!s->row->shard_grads)
        s->grad = take_node(&own, z.grad);
}

static int alloc_arrays(struct shard *s)
{
    struct shard_memory z;
    struct flow_needs needs;
    bool forms = shard_forms_in_unit(s->row, &s->conf);
    shard_measure(s->plan, s->model, &s->conf, s->comm->rank, &z);
    if (s->node)
        place_in_node(s);
    if (!s->master)
        TRY(take_f32(s, z.master, &s->master));
    if (!s->grad)
        TRY(take_f32(s, z.grad, &s->grad));
    for (int i = 0; i < s->conf.n_states && !s->state[i]; i++)
        TRY(take_f32(s, z.state / (size_t)s->conf.n_states, &s->state[i]));
    if (!s->copy)
        TRY(take(s, z.copy, &s->copy));
    if (!s->gathered_memory)
        TRY(take_bytes(s, z.gathered, &s->gathered_memory));
    if (!s->unit_grad_memory)
        TRY(take_bytes(s, z.unit_grads, &s->unit_grad_memory));
    TRY(take_bytes(s, z.second, &s->second_memory));
    flow_measure(s->plan, &s->conf.overlap, forms, dtype_bytes(s->conf.compute), &needs);
    pool_init(&s->gathered, s->plan->n_units, needs.gathered);
    pool_init(&s->unit_grads, s->plan->n_units, needs.grads);
    flow_init(&s->flow, s->plan, &s->conf.overlap, forms, &shard_flow_ops, s);
    return ERR_OK;
}

static int take_cut(const struct shard *s, int n, int64_t **out)
{
    *out = calloc((size_t)n + 1, sizeof **out);
    if (!*out)
        FAIL(ERR_RESOURCE, "no memory for the model's tables on rank %d", s->comm->rank);
    return ERR_OK;
}

static int cut_replicas(struct shard *s, struct shard_unit *x)
{
    int n = s->replicas->size;
    int64_t own = x->plan->cut[s->comm->rank + 1] - x->plan->cut[s->comm->rank], *cut;
    TRY(take_cut(s, n, &cut));
    for (int r = 0; r <= n; r++)
        cut[r] = own / BLOCK_ELEMS * r / n * BLOCK_ELEMS;
    x->replica_cut = cut;
    return ERR_OK;
}

static int cut_second(struct shard *s, struct shard_unit *x)
{
    int64_t *cut;
    TRY(take_cut(s, s->second->size, &cut));
    for (int r = 0; r <= s->second->size; r++)
        cut[r] = shard_second_cut(s->plan, x->plan, &s->conf, r);
    x->second_cut = cut;
    return ERR_OK;
}

static int make_units(struct shard *s)
{
    const struct plan *p = s->plan;
    int64_t at[] = {0, plan_own_train(p, s->comm->rank)}; /* frozen ones lie behind the others */
    s->unit = calloc((size_t)p->n_units, sizeof *s->unit);
    if (!s->unit)
        FAIL(ERR_RESOURCE, "no memory for the model's tables on rank %d", s->comm->rank);
    for (int u = 0; u < p->n_units; u++) {
        struct shard_unit *x = &s->unit[u];
        int64_t *begin = &at[p->unit[u].frozen];
        *x = (struct shard_unit){
            .shard = s, .plan = &p->unit[u], .hooks = unit_hooks, .own_begin = *begin};
        x->hooks.self = x;
        *begin += p->unit[u].cut[s->comm->rank + 1] - p->unit[u].cut[s->comm->rank];
        if (s->replicas)
            TRY(cut_replicas(s, x));
        if (s->second)
            TRY(cut_second(s, x));
    }
    return ERR_OK;
}

static void place_copies(struct shard *s)
{
    char *at = s->copy;
    for (int u = 0; u < s->plan->n_units; u++) {
        struct shard_unit *x = &s->unit[u];
        if (!shard_has_copy(s->plan, x->plan, &s->conf))
            continue;
        x->copy = at;
        at += (size_t)x->plan->n_elem * dtype_bytes(s->conf.compute);
    }
}

static void place_second(struct shard *s)
{
    char *at = s->second_memory;
    for (int u = 0; u < s->plan->n_units; u++) {
        struct shard_unit *x = &s->unit[u];
        if (!shard_has_second(s->plan, x->plan, &s->conf))
            continue;
        const int64_t *own = x->second_cut + s->second->rank;
        x->second_part = at;
        at += (size_t)(own[1] - own[0]) * dtype_bytes(s->conf.compute);
    }
}

static int alloc_tables(struct shard *s)
{
    const struct plan *p = s->plan;
    int n = s->replicas && s->replicas->size > s->comm->size ? s->replicas->size : s->comm->size;
    size_t n_ranks = (size_t)n;
    size_t scratch = n_ranks * (size_t)shard_slice_elems(&s->conf, n) * sizeof(float);
    struct shard_memory z;
    shard_measure(p, s->model, &s->conf, s->comm->rank, &z);
    /* a sum never holds more than a unit; replicas by the thousand need more than one bucket */
    s->reduce_scratch = malloc(1 + (z.scratch > scratch || !s->replicas ? z.scratch : scratch));
    s->block_sum = malloc((size_t)(s->n_own_train / BLOCK_ELEMS + 1) * sizeof(double));
    s->weight = calloc((size_t)p->n_rows + 1, sizeof *s->weight);
    s->grad_of = calloc((size_t)p->n_rows + 1, sizeof *s->grad_of);
    s->unset = calloc((size_t)p->n_rows + 1, sizeof *s->unset);
    if (!s->reduce_scratch || !s->block_sum || !s->weight || !s->grad_of || !s->unset)
        FAIL(ERR_RESOURCE, "no memory for the model's tables on rank %d", s->comm->rank);
    return ERR_OK;
}

/* Where rows point for good: weights that are never freed, gradients that are formed in place. */
static void point_rows(struct shard *s)
{
    for (int u = 0; u < s->plan->n_units; u++) {
        struct shard_unit *x = &s->unit[u];
        int64_t begin = x->plan->begin;
        if (x->copy)
            unit_point_weights(x, x->copy, dtype_bytes(s->conf.compute));
        else if (!s->row->shard_params)
            unit_point_weights(x, s->master + begin, sizeof *s->master);
        if (!s->flow.forms && !x->plan->frozen)
            unit_point_grads(x, s->grad + begin);
        bool first = u == 0 || s->plan->unit[u - 1].module != x->plan->module;
        if (first && !x->plan->persists)
            x->plan->module->hooks = &x->hooks;
    }
}

static int build(struct shard *s)
{
    TRY(make_units(s));
    TRY(swap_create(s)); /* a full disk is known before memory is taken */
    TRY(alloc_arrays(s));
    place_copies(s);
    place_second(s);
    TRY(alloc_tables(s));
    point_rows(s);
    return s->conf.power_sgd.on ? power_sgd_create(s, &s->power_sgd) : ERR_OK;
}

int shard_create(const struct plan *plan, const struct model *m, const struct shard_conf *conf,
                 const struct shard_ranks *ranks, struct stream *stream, struct shard **out)
{
    struct comm *c = ranks->comm, *replicas = ranks->replicas;
    REQUIRE(plan->size == c->size);
    REQUIRE(conf->node_memory == (ranks->node != NULL));
    REQUIRE(conf->second_size == (ranks->second ? ranks->second->size : 0));
    struct shard *s = calloc(1, sizeof *s);
    if (!s)
        FATAL("out of memory");
    *s = (struct shard){.plan = plan,
                        .row = plan->policy,
                        .model = m,
                        .comm = c,
                        .replicas = replicas && replicas->size > 1 ? replicas : NULL,
                        .second = ranks->second,
                        .node = ranks->node,
                        .stream = stream,
                        .conf = *conf,
                        .n_own_train = plan_own_train(plan, c->rank)};
    int rc = build(s);
    if (rc != ERR_OK) {
        shard_destroy(&s);
        return rc;
    }
    *out = s;
    return ERR_OK;
}

static void give(struct shard *s, void *p, size_t n_bytes)
{
    if (p)
        s->stream->dev->mem->free(p, n_bytes);
}

/* Node memory goes with its communicator. */
static void give_arrays(struct shard *s)
{
    struct shard_memory z;
    shard_measure(s->plan, s->model, &s->conf, s->comm->rank, &z);
    if (!s->offload || !s->conf.offload.master)
        give(s, s->master, z.master);
    for (int i = 0; i < s->conf.n_states && !(s->offload && s->conf.offload.states); i++)
        give(s, s->state[i], z.state / (size_t)s->conf.n_states);
    if (!s->node || s->row->shard_grads)
        give(s, s->grad, z.grad);
    if (!s->node || !s->row->shard_optim)
        give(s, s->copy, z.copy);
    give(s, s->second_memory, z.second);
    if (s->node)
        return;
    give(s, s->gathered_memory, z.gathered);
    give(s, s->unit_grad_memory, z.unit_grads);
}

void shard_destroy(struct shard **shard)
{
    struct shard *s = *shard;
    if (!s)
        return;
    if (s->unit)
        shard_finish(s);
    power_sgd_destroy(&s->power_sgd);
    for (int u = 0; s->unit && u < s->plan->n_units; u++) {
        s->plan->unit[u].module->hooks = NULL;
        free((void *)(uintptr_t)s->unit[u].replica_cut);
        free((void *)(uintptr_t)s->unit[u].second_cut);
    }
    give_arrays(s);
    swap_destroy(s);
    flow_clear(&s->flow);
    pool_clear(&s->gathered);
    pool_clear(&s->unit_grads);
    free(s->reduce_scratch);
    free(s->block_sum);
    free(s->weight);
    free(s->grad_of);
    free(s->unset);
    free(s->unit);
    free(s);
    *shard = NULL;
}
