/* How big a strategy is on one rank and what it sends: the columns of the policy, in bytes. */
#include "parallel/shard_impl.h"
#include "parallel/swap.h"

int64_t shard_slice_elems(const struct shard_conf *conf, int P)
{
    enum { BUCKET_ELEMS = 1 << 22 }; /* 16 MiB in all: large enough for any network */
    int64_t all = conf->reduce_bucket > 0 ? conf->reduce_bucket : BUCKET_ELEMS;
    int64_t n = all / P / BLOCK_ELEMS * BLOCK_ELEMS;
    return n > BLOCK_ELEMS ? n : BLOCK_ELEMS;
}

bool shard_has_copy(const struct plan *p, const struct plan_unit *u, const struct shard_conf *conf)
{
    if (p->policy->shard_params)
        return u->persists;
    return conf->compute != DTYPE_F32 || p->policy->shard_optim; /* else layers read the master */
}

static int64_t scratch_elems(const struct plan *p, const struct shard_conf *conf)
{
    int64_t most = p->size * shard_slice_elems(conf, p->size), unit = 0;
    for (int u = 0; u < p->n_units; u++)
        if (!p->unit[u].frozen && p->unit[u].n_elem > unit)
            unit = p->unit[u].n_elem;
    return unit < most ? unit : most;
}

bool shard_keeps_node_copy(const struct plan *plan, const struct shard_conf *conf)
{
    return conf->node_memory && conf->node_copy && plan->policy->shard_optim;
}

/* What the ranks read of each other moves to node memory, some of it once for all. */
static void place_in_node(const struct plan *p, const struct shard_conf *conf,
                          struct shard_memory *m)
{
    const struct policy *row = p->policy;
    if (shard_keeps_node_copy(p, conf)) {
        m->node = shard_pages(m->gathered) + shard_pages(m->copy);
        m->gathered = m->copy = 0;
    }
    m->node_own = shard_pages(m->unit_grads) + shard_pages(m->gathered);
    if (!row->shard_grads)
        m->node_own += shard_pages(m->grad);
    if (row->shard_optim)
        m->node_own += shard_pages(m->copy);
}

void shard_measure(const struct plan *p, const struct model *m, const struct shard_conf *conf,
                   int rank, struct shard_memory *out)
{
    const struct policy *row = p->policy;
    size_t whole = (size_t)p->n_elem * sizeof(float);
    size_t own = (size_t)plan_own_elems(p, rank) * sizeof(float);
    size_t whole_train = (size_t)p->n_train * sizeof(float);
    size_t own_train = (size_t)plan_own_train(p, rank) * sizeof(float);
    size_t elem = dtype_bytes(conf->compute);
    bool in_node = conf->node_memory && conf->node_ranks >= p->size && row->group != GROUP_NODE;
    *out = (struct shard_memory){.master = row->shard_optim ? own : whole,
                                 .grad = row->shard_grads ? own_train : whole_train};
    /* sums in a node need none */
    out->scratch = in_node ? 0 : (size_t)scratch_elems(p, conf) * sizeof(float);
    out->state = (row->shard_optim ? own_train : whole_train) * (size_t)conf->n_states;
    for (int u = 0; u < p->n_units; u++)
        if (shard_has_copy(p, &p->unit[u], conf))
            out->copy += (size_t)p->unit[u].n_elem * elem;
    out->swap = (size_t)swap_buffer_elems(p, m, conf, rank) * sizeof(float);
    if (conf->offload.dir && conf->offload.states) {
        out->disk = out->state;
        out->state = 0;
    }
    if (conf->offload.dir && conf->offload.master) {
        out->disk += out->master;
        out->master = 0;
    }
    flow_measure(p, &conf->overlap, shard_forms_in_unit(row, conf), elem, &out->gathered,
                 &out->unit_grads);
    if (conf->power_sgd.on) {
        struct power_sgd_sizes h;
        power_sgd_measure(p, m, conf, &h);
        out->hook = (size_t)(h.error + h.q + h.p + h.scratch) * sizeof(float);
    }
    if (conf->node_memory)
        place_in_node(p, conf, out);
}

size_t shard_bytes(const struct plan *p, const struct model *m, const struct shard_conf *conf,
                   int rank)
{
    struct shard_memory z;
    shard_measure(p, m, conf, rank, &z);
    return z.master + z.copy + z.grad + z.state + z.gathered + z.unit_grads + z.scratch + z.swap +
           z.hook;
}

void shard_count_traffic(const struct plan *p, const struct model *m, const struct shard_conf *conf,
                         int64_t accumulation, int64_t n_replicas, struct shard_traffic *out)
{
    const struct policy *row = p->policy;
    double n = (double)p->n_train, elem = (double)dtype_bytes(conf->compute);
    double share = (double)(p->size - 1) / p->size, micro = (double)accumulation;
    double across = (double)(n_replicas - 1) / (double)n_replicas;
    if (row->averages) { /* a sum and a gather of the weights every so many steps */
        *out = (struct shard_traffic){.summed = n * sizeof(float) * across};
        out->summed /= conf->average_every > 0 ? (double)conf->average_every : 1;
        out->gathered = out->summed;
        out->sent = out->gathered + out->summed;
        return;
    }
    if (conf->power_sgd.on) {
        struct power_sgd_sizes h;
        power_sgd_measure(p, m, conf, &h);
        n = (double)(h.q + h.p); /* once it has begun */
    }
    double sums = row->shard_grads || conf->sync_each_batch ? micro : 1;
    double sum_elem = (double)dtype_bytes(conf->reduce);
    *out = (struct shard_traffic){.summed = sums * n * sum_elem * share};
    /* an own part's all-reduce among the replicas: a sum and a gather */
    out->summed += sums * n / p->size * (sum_elem + sizeof(float)) * across;
    if (row->shard_params) {
        for (int u = 0; u < p->n_units; u++) {
            const struct plan_unit *x = &p->unit[u];
            double times = x->persists ? !x->frozen : x->keep ? micro : 2 * micro;
            out->gathered += times * (double)x->n_elem * elem * share;
        }
    } else if (row->shard_optim) {
        out->gathered = n * elem * share;
    } else {
        out->gathered = n * sizeof(float) * share; /* the summed gradient */
    }
    out->sent = out->gathered + out->summed;
}
