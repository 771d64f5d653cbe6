/* What happens around a unit's forward and backward: gather, free, form the gradient, sum it.  flow
 * says when; this is how. */
#include "parallel/shard_impl.h"

#include <string.h>

static int index_of(const struct shard_unit *x)
{
    return (int)(x - x->shard->unit);
}

bool shard_forms_in_unit(const struct policy *row, const struct shard_conf *conf)
{
    return row->shard_grads || conf->sync_each_batch;
}

void unit_point_weights(struct shard_unit *x, void *whole, size_t elem_bytes)
{
    struct shard *s = x->shard;
    for (int i = 0; i < x->plan->n_rows; i++) {
        int row = x->plan->row[i];
        size_t at = (size_t)(s->plan->place[row].begin - x->plan->begin);
        s->weight[row] = whole ? (char *)whole + at * elem_bytes : NULL;
    }
}

void unit_point_grads(struct shard_unit *x, float *whole)
{
    struct shard *s = x->shard;
    for (int i = 0; i < x->plan->n_rows; i++) {
        int row = x->plan->row[i];
        s->grad_of[row] = whole ? whole + (s->plan->place[row].begin - x->plan->begin) : NULL;
    }
}

/* Neighbours may still read what lay here, where the node has one copy. */
static void await_readers(const struct shard_unit *x, size_t begin, size_t end)
{
    const struct shard *s = x->shard;
    uint32_t mark = 0;
    bool any = false;
    for (int u = 0; u < s->plan->n_units; u++) {
        const struct unit_place *p = &s->unit[u].left;
        if (p->end <= begin || p->begin >= end)
            continue;
        if (!any || (int32_t)(p->mark - mark) > 0)
            mark = p->mark;
        any = true;
    }
    if (any)
        node_await(s->node, mark);
}

static struct comm_task gather_task(void *buf, const int64_t *cut, size_t elem_bytes)
{
    return (struct comm_task){
        .what = COMM_ALL_GATHER, .buf = buf, .cut = cut, .elem_bytes = elem_bytes};
}

static struct comm_task sum_task(const struct shard *s, float *buf, const int64_t *cut, int size)
{
    return (struct comm_task){.what = COMM_REDUCE_SCATTER,
                              .buf = buf,
                              .cut = cut,
                              .slice_elems = shard_slice_elems(&s->conf, size),
                              .dtype = s->conf.reduce,
                              .scratch = s->reduce_scratch};
}

static void run_task(struct comm *c, struct comm_task *t, bool now)
{
    if (now)
        comm_run(c, t);
    else
        comm_start(c, t);
}

/* Cast the own part first, then gather in the compute dtype. */
static void gather_all(struct shard_unit *x, char *whole, bool now)
{
    struct shard *s = x->shard;
    const int64_t *own = x->plan->cut + s->comm->rank;
    size_t elem = dtype_bytes(s->conf.compute);
    s->stream->k->cast(s->stream, whole + (size_t)own[0] * elem,
                       shard_at(s, x, s->master, true, own[0]), own[1] - own[0]);
    x->gather = gather_task(whole, x->plan->cut, elem);
    run_task(s->comm, &x->gather, now);
}

/* This rank's second part of a unit, counted from its first byte; returns how many there are. */
static size_t second_bytes(const struct shard_unit *x, size_t *begin)
{
    const struct shard *s = x->shard;
    const int64_t *own = x->second_cut + s->second->rank;
    *begin = (size_t)own[0] * dtype_bytes(s->conf.compute);
    return (size_t)(own[1] - own[0]) * dtype_bytes(s->conf.compute);
}

/* Of what left in this micro-step a few ranks have all, in the compute dtype. */
static void gather_second(struct shard_unit *x, char *whole, bool now)
{
    struct shard *s = x->shard;
    size_t begin, n_bytes = second_bytes(x, &begin);
    s->stream->dev->mem->copy(s->stream, whole + begin, x->second_part, n_bytes);
    x->gather = gather_task(whole, x->second_cut, dtype_bytes(s->conf.compute));
    run_task(s->second, &x->gather, now);
}

static void gather(void *self, int unit, bool again, bool now)
{
    struct shard *s = self;
    struct shard_unit *x = &s->unit[unit];
    size_t n_bytes = (size_t)x->plan->n_elem * dtype_bytes(s->conf.compute);
    x->gathered_at = pool_take(&s->gathered, n_bytes);
    char *whole = s->gathered_memory + x->gathered_at;
    if (s->has_node_copy)
        await_readers(x, x->gathered_at, x->gathered_at + n_bytes);
    if (again && s->second)
        gather_second(x, whole, now);
    else
        gather_all(x, whole, now);
}

static void need(void *self, int unit)
{
    struct shard *s = self;
    struct shard_unit *x = &s->unit[unit];
    comm_wait(&x->gather);
    unit_point_weights(x, x->gather.buf, x->gather.elem_bytes);
}

static void release(void *self, int unit, bool leaves)
{
    struct shard *s = self;
    struct shard_unit *x = &s->unit[unit];
    size_t n_bytes = (size_t)x->plan->n_elem * dtype_bytes(s->conf.compute);
    if (leaves && s->second) {
        size_t begin, n = second_bytes(x, &begin);
        s->stream->dev->mem->copy(s->stream, x->second_part,
                                  s->gathered_memory + x->gathered_at + begin, n);
    }
    pool_give(&s->gathered, x->gathered_at);
    if (s->has_node_copy)
        x->left = (struct unit_place){x->gathered_at, x->gathered_at + n_bytes, node_mark(s->node)};
    unit_point_weights(x, NULL, 0);
}

static int64_t row_elems(const struct shard *s, int row)
{
    return shape_elems(&s->model->table.rows[row].shape);
}

/* What lies between a row and the next, which sums and updates pass over. */
static void clear_gap(struct shard_unit *x, int row)
{
    struct shard *s = x->shard;
    int64_t n = row_elems(s, row), gap = (BLOCK_ELEMS - n % BLOCK_ELEMS) % BLOCK_ELEMS;
    s->stream->dev->mem->zero(s->stream, s->grad_of[row] + n, (size_t)gap * sizeof(float));
}

/* The first who adds to a gradient overwrites it: that spares a pass over the whole memory, and the
 * reading of zeros.  (A sum that underflows from below is then -0, where 0 + -0 were 0.) */
void unit_unset_grads(struct shard_unit *x)
{
    struct shard *s = x->shard;
    for (int i = 0; i < x->plan->n_rows; i++) {
        int row = x->plan->row[i];
        if (s->grad_of[row])
            s->unset[row] = row_elems(s, row);
    }
}

/* What no module added to: a rank without samples has forward and backward as well.  Not before:
 * activations may have lain here. */
void unit_clear_unset(struct shard_unit *x)
{
    struct shard *s = x->shard;
    for (int i = 0; i < x->plan->n_rows; i++) {
        int row = x->plan->row[i];
        if (!s->grad_of[row])
            continue;
        s->stream->dev->mem->zero(s->stream, s->grad_of[row],
                                  (size_t)s->unset[row] * sizeof(float));
        s->unset[row] = 0;
        clear_gap(x, row);
    }
}

/* A micro-step's gradient is formed alone, then summed, then added. */
static void form(void *self, int unit)
{
    struct shard *s = self;
    struct shard_unit *x = &s->unit[unit];
    size_t n_bytes = (size_t)x->plan->n_elem * sizeof(float);
    x->grad_at = pool_take(&s->unit_grads, n_bytes);
    x->unit_grad = (float *)(void *)(s->unit_grad_memory + x->grad_at);
    unit_point_grads(x, x->unit_grad);
    unit_unset_grads(x);
}

/* Over the ranks of the group, then over the replicas of the own part: the same tree over all ranks
 * as long as groups are 2^k neighbours. */
static void sum(void *self, int unit, bool now)
{
    struct shard *s = self;
    struct shard_unit *x = &s->unit[unit];
    float *g = x->unit_grad ? x->unit_grad : s->grad + x->plan->begin;
    unit_clear_unset(x);
    if (x->unit_grad)
        unit_point_grads(x, NULL);
    x->sum = sum_task(s, g, x->plan->cut, s->comm->size);
    run_task(s->comm, &x->sum, now);
    if (!s->replicas || s->row->averages)
        return;
    float *own = g + x->plan->cut[s->comm->rank];
    x->replica_sum = sum_task(s, own, x->replica_cut, s->replicas->size);
    x->replica_share = gather_task(own, x->replica_cut, sizeof *own);
    run_task(s->replicas, &x->replica_sum, now);
    run_task(s->replicas, &x->replica_share, now);
}

/* Where every rank updates the whole, the summed gradient goes to all, behind what follows. */
static void share_grad(struct shard_unit *x)
{
    struct shard *s = x->shard;
    if (s->row->shard_optim || !s->last)
        return;
    x->share = gather_task(s->grad + x->plan->begin, x->plan->cut, sizeof(float));
    x->is_shared = true;
    comm_start(s->comm, &x->share);
}

static void end_sum(void *self, int unit)
{
    struct shard *s = self;
    struct shard_unit *x = &s->unit[unit];
    int64_t begin = x->plan->cut[s->comm->rank], end = x->plan->cut[s->comm->rank + 1];
    comm_wait(&x->sum);
    comm_wait(&x->replica_sum); /* of no effect where there is none */
    comm_wait(&x->replica_share);
    if (x->unit_grad) {
        s->stream->k->accumulate(s->stream, shard_at(s, x, s->grad, s->row->shard_grads, begin),
                                 x->unit_grad + begin, end - begin);
        pool_give(&s->unit_grads, x->grad_at);
        x->unit_grad = NULL;
    }
    share_grad(x);
}

void shard_finish(struct shard *s)
{
    for (int u = 0; u < s->plan->n_units; u++) {
        struct shard_unit *x = &s->unit[u];
        if (x->is_shared)
            comm_wait(&x->share);
        x->is_shared = false;
    }
}

const struct flow_ops shard_flow_ops = {
    .gather = gather,
    .need = need,
    .release = release,
    .form = form,
    .sum = sum,
    .end_sum = end_sum,
};

static void unit_before_forward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    if (!p->dry)
        flow_before_forward(&x->shard->flow, index_of(x), p->training);
}

static void unit_after_forward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    if (!p->dry)
        flow_after_forward(&x->shard->flow, index_of(x), p->training);
}

static void unit_before_backward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    if (!p->dry)
        flow_before_backward(&x->shard->flow, index_of(x));
}

static void unit_after_backward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    struct shard *s = x->shard;
    if (!p->dry)
        flow_after_backward(&s->flow, index_of(x), s->flow.forms || (s->last && !s->power_sgd));
}

const struct hooks unit_hooks = {
    .before_forward = unit_before_forward,
    .after_forward = unit_after_forward,
    .before_backward = unit_before_backward,
    .after_backward = unit_after_backward,
};
