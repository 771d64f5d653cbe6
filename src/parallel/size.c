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

bool shard_has_second(const struct plan *p, const struct plan_unit *u,
                      const struct shard_conf *conf)
{
    return conf->second_size > 0 && p->policy->shard_params &&
           !(u->keep || u->persists || u->module->still);
}

/* Bytes of rank's second parts. */
static size_t second_bytes(const struct plan *p, const struct shard_conf *conf, int rank)
{
    int64_t n = 0;
    for (int u = 0; u < p->n_units; u++) {
        const struct plan_unit *x = &p->unit[u];
        if (!shard_has_second(p, x, conf))
            continue;
        int r = rank % conf->second_size;
        n += shard_second_cut(p, x, conf, r + 1) - shard_second_cut(p, x, conf, r);
    }
    return (size_t)n * dtype_bytes(conf->compute);
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

/* What ranks read of each other moves to node memory, in whole pages, some of it once for all. */
static void place_in_node(const struct plan *p, const struct shard_conf *conf,
                          struct shard_memory *m)
{
    const struct policy *row = p->policy;
    if (shard_keeps_node_copy(p, conf)) {
        m->node = shard_pages(m->gathered) + shard_pages(m->copy);
        m->gathered = m->copy = 0;
    }
    size_t *part[] = {&m->unit_grads, &m->gathered, row->shard_grads ? NULL : &m->grad,
                      row->shard_optim ? &m->copy : NULL};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (!part[i])
            continue;
        *part[i] = shard_pages(*part[i]);
        m->node_own += *part[i];
    }
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
    struct flow_needs needs;
    flow_measure(p, &conf->overlap, shard_forms_in_unit(row, conf), elem, &needs);
    out->gathered = needs.gathered;
    out->unit_grads = needs.grads;
    out->second = second_bytes(p, conf, rank);
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
    return z.master + z.copy + z.grad + z.state + z.gathered + z.second + z.unit_grads + z.scratch +
           z.swap + z.hook;
}

/* Bytes of the arrays that a step gathers and sums over the ranks of a group, that it gathers from
 * second parts, and what goes over the replicas of all parts. */
struct step_bytes {
    double gathered, summed, again, replicas_gathered, replicas_summed;
};

/* A step of LocalSGD sums and gathers the weights, every so many steps. */
static void count_average(const struct plan *p, const struct shard_conf *conf, struct step_bytes *b)
{
    double every = conf->average_every > 0 ? (double)conf->average_every : 1;
    b->replicas_summed = b->replicas_gathered = (double)p->n_train * sizeof(float) / every;
}

static void count_step(const struct plan *p, const struct model *m, const struct shard_conf *conf,
                       const struct shard_world *w, struct step_bytes *b)
{
    const struct policy *row = p->policy;
    double n = (double)p->n_train, elem = (double)dtype_bytes(conf->compute);
    double micro = (double)w->accumulation, sum_elem = (double)dtype_bytes(conf->reduce);
    double sums = row->shard_grads || conf->sync_each_batch ? micro : 1;
    if (conf->power_sgd.on) {
        struct power_sgd_sizes h;
        power_sgd_measure(p, m, conf, &h);
        n = (double)(h.q + h.p); /* once it has begun */
    }
    b->summed = sums * n * sum_elem;
    /* an own part's all-reduce among the replicas: a sum and a gather */
    b->replicas_summed = sums * n * sum_elem;
    b->replicas_gathered = sums * n * sizeof(float);
    if (!row->shard_params) {
        b->gathered = n * (row->shard_optim ? elem : sizeof(float)); /* else the summed gradient */
        return;
    }
    struct flow_needs needs;
    flow_measure(p, &conf->overlap, shard_forms_in_unit(row, conf), dtype_bytes(conf->compute),
                 &needs);
    *(conf->second_size > 0 ? &b->again : &b->gathered) = micro * elem * (double)needs.n_again;
    b->gathered += micro * elem * (double)needs.n_first;
    for (int u = 0; u < p->n_units; u++) /* and, behind the update, what is always whole */
        if (p->unit[u].persists && !p->unit[u].frozen)
            b->gathered += (double)p->unit[u].n_elem * elem;
}

static double others(double n)
{
    return n > 1 ? (n - 1) / n : 0;
}

/* What leaves a node, on average, where b bytes are gathered from second parts: groups of
 * neighbours that are all on one node send nothing. */
static double second_left(const struct plan *p, const struct shard_conf *conf, int64_t here,
                          bool by_node, double b)
{
    int k = conf->second_size;
    double left = 0;
    for (int64_t first = 0; b > 0 && first < p->size; first += k) {
        double nodes = (double)((first + k - 1) / here - first / here + 1);
        if (nodes > 1)
            left += by_node ? b * (nodes - 1) : nodes * b * others(k);
    }
    return left * (double)here / p->size;
}

void shard_count_traffic(const struct plan *p, const struct model *m, const struct shard_conf *conf,
                         const struct shard_world *w, struct shard_traffic *out)
{
    struct step_bytes b = {0};
    double P = p->size, R = (double)w->n_replicas, here = (double)w->node_ranks;
    if (p->policy->averages)
        count_average(p, conf, &b);
    else
        count_step(p, m, conf, w, &b);
    *out = (struct shard_traffic){
        .gathered = b.gathered * others(P) + b.again * others(conf->second_size) +
                    b.replicas_gathered / P * others(R),
        .summed = b.summed * others(P) + b.replicas_summed / P * others(R)};
    out->sent = out->gathered + out->summed;
    /* A tree of neighbours crosses between nodes once; so do gathers through node memory, but a
     * ring of messages takes every part through every node. */
    double nodes = P > here ? P / here : 1, sets = P > here ? here : P;
    double replica_nodes = P > here ? R : R * P / here;
    bool by_node = conf->node_memory && !conf->power_sgd.on;
    if (nodes > 1)
        out->left += b.summed * others(nodes) + b.gathered * others(by_node ? nodes : P) +
                     second_left(p, conf, w->node_ranks, by_node, b.again);
    if (replica_nodes > 1)
        out->left += sets / P *
                     (b.replicas_summed * others(replica_nodes) + b.replicas_gathered * others(R));
}
