/* Parts of a model's state by row: first values, copies in the compute dtype, and the update. */
#include "parallel/shard_impl.h"

#include "base/hash.h"
#include "parallel/swap.h"

void shard_sum_by_hook(struct shard *s, int64_t step)
{
    if (s->power_sgd)
        power_sgd_sum(s->power_sgd, step);
}

/* All of row in an array of a hook; nothing where it has none. */
static struct shard_part hook_whole(const struct shard *s, int array, int row)
{
    struct shard_part p = {0};
    int64_t r;
    if (!s->power_sgd || !power_sgd_compresses(s->model, &s->conf.power_sgd, row, &r))
        return p;
    const struct shape *shape = &s->model->table.rows[row].shape;
    p.end = array == SHARD_HOOK_Q ? r * shape->dim[1] : shape_elems(shape);
    return p;
}

/* A hook's error is cut as gradients are; rank 0 owns Q, which all hold. */
struct shard_part shard_part_of(const struct shard *s, int array, int row, int rank)
{
    struct shard_part p = {0};
    if (array == SHARD_HOOK_Q)
        return rank == 0 ? hook_whole(s, array, row) : p;
    bool none = array == SHARD_HOOK_ERROR
                    ? hook_whole(s, array, row).end == 0
                    : s->plan->unit[s->plan->place[row].unit].frozen && array != SHARD_MASTER;
    if (!none)
        plan_own_part(s->plan, s->model, row, rank, &p.begin, &p.end);
    return p;
}

static struct shard_part hook_part(const struct shard *s, int array, int row, bool own_only)
{
    struct shard_part p =
        own_only ? shard_part_of(s, array, row, s->comm->rank) : hook_whole(s, array, row);
    float *q = power_sgd_q(s->power_sgd, row), *e = power_sgd_error(s->power_sgd);
    if (p.begin < p.end)
        p.values = array == SHARD_HOOK_Q ? q : e + s->plan->place[row].begin + p.begin;
    return p;
}

static struct shard_part part_of(const struct shard *s, int array, int row, bool own_only)
{
    if (array >= SHARD_HOOK_ERROR)
        return hook_part(s, array, row, own_only);
    const struct plan_place *at = &s->plan->place[row];
    const struct shard_unit *x = &s->unit[at->unit];
    bool is_grad = array == SHARD_GRAD;
    bool parts = is_grad ? s->row->shard_grads : s->row->shard_optim;
    float *base = is_grad                 ? s->grad
                  : array == SHARD_MASTER ? s->master
                                          : s->state[array - SHARD_STATE];
    struct shard_part p = shard_part_of(s, array, row, s->comm->rank);
    if (!own_only && !parts && !(x->plan->frozen && array != SHARD_MASTER))
        p = (struct shard_part){.end = shape_elems(&s->model->table.rows[row].shape)};
    if (p.begin < p.end)
        p.values = shard_at(s, x, base, parts, at->begin - x->plan->begin + p.begin);
    return p;
}

struct shard_part shard_own_part(const struct shard *s, int array, int row)
{
    return part_of(s, array, row, true);
}

struct shard_part shard_held_part(const struct shard *s, int array, int row)
{
    return part_of(s, array, row, false);
}

void shard_init(struct shard *s, uint64_t seed)
{
    for (int r = 0; r < s->plan->n_rows; r++) {
        const struct tensor_row *row = &s->model->table.rows[r];
        struct rng_key key = rng_key_make(seed, hash64_string(row->name));
        struct shard_part p = shard_held_part(s, SHARD_MASTER, r);
        if (p.begin < p.end)
            s->stream->k->fill(s->stream, p.values, &row->init, key, p.begin, p.end - p.begin);
    }
}

/* Own parts of the whole copy are up to date: bring the others'.  An update leaves frozen ones. */
static void share_copy(struct shard *s, bool frozen_too)
{
    for (int u = 0; s->row->shard_optim && u < s->plan->n_units; u++) {
        const struct shard_unit *x = &s->unit[u];
        if (!x->copy || (x->plan->frozen && !frozen_too))
            continue;
        struct comm_task t = {.what = COMM_ALL_GATHER,
                              .buf = x->copy,
                              .cut = x->plan->cut,
                              .elem_bytes = dtype_bytes(s->conf.compute)};
        comm_run(s->comm, &t);
    }
}

void *shard_copy_at(const struct shard *s, int row, int64_t begin)
{
    const struct shard_unit *x = &s->unit[s->plan->place[row].unit];
    size_t at = (size_t)(s->plan->place[row].begin - x->plan->begin + begin);
    return x->copy ? (char *)x->copy + at * dtype_bytes(s->conf.compute) : NULL;
}

void shard_refresh(struct shard *s)
{
    for (int r = 0; s->copy && r < s->plan->n_rows; r++) {
        struct shard_part p = shard_held_part(s, SHARD_MASTER, r);
        void *copy = shard_copy_at(s, r, p.begin);
        if (p.begin < p.end && copy)
            s->stream->k->cast(s->stream, copy, p.values, p.end - p.begin);
    }
    share_copy(s, true);
}

void shard_begin_step(struct shard *s)
{
    size_t n = (size_t)(s->row->shard_grads ? s->n_own_train : s->plan->n_train);
    shard_finish(s);
    for (int i = 0; !s->flow.forms && i < s->plan->n_units; i++)
        unit_unset_grads(&s->unit[i]);
    if (!s->flow.forms)
        return;
    s->stream->dev->mem->zero(s->stream, s->grad, n * sizeof *s->grad);
}

void shard_begin_micro(struct shard *s, bool last)
{
    s->last = last;
}

void shard_share(struct shard *s, int array)
{
    bool is_master = array == SHARD_MASTER;
    float *whole = is_master ? s->master : s->state[array - SHARD_STATE];
    for (int u = 0; !s->row->shard_optim && u < s->plan->n_units; u++) {
        const struct plan_unit *x = &s->plan->unit[u];
        struct comm_task t = {.what = COMM_ALL_GATHER,
                              .buf = whole + x->begin,
                              .cut = x->cut,
                              .elem_bytes = sizeof *whole};
        if (!x->frozen || is_master)
            comm_run(s->comm, &t);
    }
}

static void update_in_memory(struct shard *s, const struct optim_ops *ops, const void *conf,
                             const struct optim_step *step)
{
    for (int r = 0; r < s->plan->n_rows; r++) {
        struct shard_part w = shard_held_part(s, SHARD_MASTER, r);
        if ((s->model->table.rows[r].flags & TENSOR_FROZEN) || w.begin == w.end)
            continue;
        struct shard_part g = s->row->shard_optim ? shard_own_part(s, SHARD_GRAD, r)
                                                  : shard_held_part(s, SHARD_GRAD, r);
        float *state[OPTIM_MAX_STATES] = {0};
        for (int i = 0; i < s->conf.n_states; i++)
            state[i] = shard_held_part(s, SHARD_STATE + i, r).values;
        ops->update(conf, s->stream, w.values, g.values, state, shard_copy_at(s, r, w.begin),
                    w.end - w.begin, &step[r]);
    }
}

void shard_update(struct shard *s, const struct optim_ops *ops, const void *conf,
                  const struct optim_step *step)
{
    shard_finish(s);
    if (s->offload)
        swap_update(s, ops, conf, step);
    else
        update_in_memory(s, ops, conf, step);
    share_copy(s, false);
}

int shard_disk_status(struct shard *s)
{
    return s->offload ? offload_status(s->offload) : ERR_OK;
}
