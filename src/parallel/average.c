/* Means over replicas that took steps of their own. */
#include "parallel/shard_impl.h"

static void average(struct shard *s, float *array)
{
    struct comm *c = s->replicas;
    float share = 1.0f / (float)c->size;
    for (int u = 0; u < s->plan->n_units; u++) {
        struct shard_unit *x = &s->unit[u];
        if (x->plan->frozen)
            continue;
        float *own = shard_at(s, x, array, s->row->shard_optim, x->plan->cut[s->comm->rank]);
        c->ops->reduce_scatter(c, own, x->replica_cut, shard_slice_elems(&s->conf, c->size),
                               DTYPE_F32, s->reduce_scratch);
        int64_t begin = x->replica_cut[c->rank], end = x->replica_cut[c->rank + 1];
        s->stream->k->scale(s->stream, own + begin, share, end - begin);
        c->ops->all_gather(c, own, x->replica_cut, sizeof *own);
    }
}

void shard_average_weights(struct shard *s)
{
    if (s->row->averages && s->replicas)
        average(s, s->master);
}

void shard_average_states(struct shard *s)
{
    for (int i = 0; s->row->averages && s->replicas && i < s->conf.n_states; i++)
        average(s, s->state[i]);
}
