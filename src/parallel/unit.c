/* What happens around a unit's forward and backward: gather, free, form the gradient, sum it. */
#include "parallel/shard_impl.h"

#include <string.h>

static void unit_before_forward(void *self, struct pass *p);
static void unit_after_forward(void *self, struct pass *p);
static void unit_before_backward(void *self, struct pass *p);
static void unit_after_backward(void *self, struct pass *p);

const struct hooks unit_hooks = {
    .before_forward = unit_before_forward,
    .after_forward = unit_after_forward,
    .before_backward = unit_before_backward,
    .after_backward = unit_after_backward,
};

bool shard_forms_in_unit(const struct shard *s)
{
    return s->row->shard_grads || s->conf.sync_each_batch;
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

/* Cast the own part first, then gather in the compute dtype. */
static void gather(struct shard_unit *x)
{
    struct shard *s = x->shard;
    const struct plan_unit *u = x->plan;
    if (!s->row->shard_params || x->is_gathered || u->persists || u->n_elem == 0)
        return;
    size_t elem = dtype_bytes(s->conf.compute);
    int64_t begin = u->cut[s->comm->rank], n = u->cut[s->comm->rank + 1] - begin;
    x->gathered_mark = stack_mark(&s->gathered);
    x->gathered = stack_push(&s->gathered, (size_t)u->n_elem * elem);
    s->stream->k->cast(s->stream, (char *)x->gathered + (size_t)begin * elem,
                       shard_at(s, x, s->master, true, begin), n);
    s->comm->ops->all_gather(s->comm, x->gathered, u->cut, elem);
    x->is_gathered = true;
    unit_point_weights(x, x->gathered, elem);
}

static void gather_all(struct shard_unit *x)
{
    gather(x);
    if (x->frozen)
        gather(x->frozen);
}

static void release(struct shard_unit *x)
{
    if (!x->is_gathered)
        return;
    stack_release(&x->shard->gathered, x->gathered_mark);
    x->is_gathered = false;
    unit_point_weights(x, NULL, 0);
}

/* In the opposite order. */
static void release_all(struct shard_unit *x)
{
    if (x->frozen)
        release(x->frozen);
    release(x);
}

/* A micro-step's gradient is formed from zero, then summed, then added. */
static void begin_gradient(struct shard_unit *x)
{
    struct shard *s = x->shard;
    if (!shard_forms_in_unit(s) || x->unit_grad || x->plan->frozen)
        return;
    size_t n_bytes = (size_t)x->plan->n_elem * sizeof(float);
    x->grad_mark = stack_mark(&s->unit_grads);
    x->unit_grad = stack_push(&s->unit_grads, n_bytes);
    s->stream->dev->mem->zero(s->stream, x->unit_grad, n_bytes);
    unit_point_grads(x, x->unit_grad);
}

/* Sum over the ranks of the group, then over the replicas of the own part: the same tree over all
 * ranks as long as groups are 2^k neighbours. */
static void sum_over_ranks(struct shard_unit *x, float *g)
{
    struct shard *s = x->shard;
    s->comm->ops->reduce_scatter(s->comm, g, x->plan->cut,
                                 shard_slice_elems(&s->conf, s->comm->size), s->reduce_scratch);
    if (!s->replicas || s->row->averages)
        return;
    float *own = g + x->plan->cut[s->comm->rank];
    s->replicas->ops->reduce_scatter(s->replicas, own, x->replica_cut,
                                     shard_slice_elems(&s->conf, s->replicas->size),
                                     s->reduce_scratch);
    s->replicas->ops->all_gather(s->replicas, own, x->replica_cut, sizeof *own);
}

static void end_gradient(struct shard_unit *x)
{
    struct shard *s = x->shard;
    const struct plan_unit *u = x->plan;
    if (u->frozen)
        return;
    if (!shard_forms_in_unit(s)) {
        if (s->last)
            sum_over_ranks(x, s->grad + u->begin);
        return;
    }
    sum_over_ranks(x, x->unit_grad);
    int64_t begin = u->cut[s->comm->rank], end = u->cut[s->comm->rank + 1];
    s->stream->k->accumulate(s->stream, shard_at(s, x, s->grad, s->row->shard_grads, begin),
                             x->unit_grad + begin, end - begin);
    stack_release(&s->unit_grads, x->grad_mark);
    x->unit_grad = NULL;
    unit_point_grads(x, NULL);
}

static void unit_before_forward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    if (p->dry)
        return;
    gather_all(x);
    if (p->training && (x->plan->early_grad || x->plan->encloses || x->rider))
        begin_gradient(x);
    if (p->training && x->rider)
        begin_gradient(x->rider);
}

static void unit_after_forward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    if (p->dry)
        return;
    if (!p->training || !x->plan->keep)
        release_all(x);
}

static void unit_before_backward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    if (p->dry)
        return;
    gather_all(x);
    begin_gradient(x);
}

static void unit_after_backward(void *self, struct pass *p)
{
    struct shard_unit *x = self;
    if (p->dry)
        return;
    if (x->rider)
        end_gradient(x->rider);
    end_gradient(x);
    release_all(x);
}
