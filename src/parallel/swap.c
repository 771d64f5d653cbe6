/* What of a shard is on disk, and the update that streams over it. */
#include "parallel/swap.h"

#include "parallel/shard_impl.h"
#include <stdlib.h>

/* Arrays on disk: states in front, then the master. */
static int count_arrays(const struct shard_conf *conf)
{
    if (!conf->offload.dir)
        return 0;
    return (conf->offload.states ? conf->n_states : 0) + (conf->offload.master ? 1 : 0);
}

/* As the job asks for, with tiles no larger than the blocks of the largest part of a tensor. */
static struct offload_conf fit(const struct plan *p, const struct model *m,
                               const struct shard_conf *conf, int rank)
{
    struct offload_conf c = conf->offload;
    int64_t begin, end, most = BLOCK_ELEMS;
    for (int i = 0; i < p->n_trained; i++) {
        plan_own_part(p, m, p->trained[i], rank, &begin, &end);
        most = end - begin > most ? end - begin : most;
    }
    most = (most + BLOCK_ELEMS - 1) / BLOCK_ELEMS * BLOCK_ELEMS;
    c.tile_elems = most < c.tile_elems ? most : c.tile_elems;
    return c;
}

int64_t swap_buffer_elems(const struct plan *p, const struct model *m,
                          const struct shard_conf *conf, int rank)
{
    int n = count_arrays(conf);
    if (n == 0)
        return 0;
    const struct offload_conf c = fit(p, m, conf, rank);
    return offload_buffer_elems(&c, n);
}

/* A row's own part in pieces of at most a tile; tile NULL: count them. */
static int64_t cut_tiles(struct shard *s, int row, struct offload_tile *tile)
{
    int64_t most = s->conf.offload.tile_elems, begin, end, n = 0;
    const struct plan_place *at = &s->plan->place[row];
    const struct shard_unit *x = &s->unit[at->unit];
    plan_own_part(s->plan, s->model, row, s->comm->rank, &begin, &end);
    int64_t first = x->own_begin + at->begin - x->plan->begin - x->plan->cut[s->comm->rank];
    for (int64_t i = begin; i < end; i += most, n++)
        if (tile)
            tile[n] = (struct offload_tile){.begin = first + i,
                                            .n = end - i < most ? end - i : most,
                                            .row = row,
                                            .row_begin = i};
    return n;
}

static int plan_tiles(struct shard *s)
{
    const struct plan *p = s->plan;
    for (int i = 0; i < p->n_trained; i++)
        s->n_tiles += cut_tiles(s, p->trained[i], NULL);
    s->tile = malloc((size_t)(s->n_tiles + 1) * sizeof *s->tile);
    if (!s->tile)
        FAIL(ERR_RESOURCE, "no memory for the model's tables on rank %d", s->comm->rank);
    int64_t n = 0;
    for (int i = 0; i < p->n_trained; i++)
        n += cut_tiles(s, p->trained[i], s->tile + n);
    return ERR_OK;
}

int swap_create(struct shard *s)
{
    const struct plan *p = s->plan;
    int n = count_arrays(&s->conf), at = 0;
    int64_t elems[OFFLOAD_ARRAYS_MAX];
    if (n == 0)
        return ERR_OK;
    REQUIRE(s->row->shard_optim && n <= OFFLOAD_ARRAYS_MAX);
    for (int i = 0; i < n; i++)
        elems[i] = plan_own_train(p, s->comm->rank);
    if (s->conf.offload.master) /* frozen weights lie behind the others */
        elems[n - 1] = plan_own_elems(p, s->comm->rank);
    s->conf.offload = fit(p, s->model, &s->conf, s->comm->rank);
    TRY(offload_create(&s->conf.offload, n, elems, &s->offload));
    for (int i = 0; i < s->conf.n_states && s->conf.offload.states; i++)
        s->state[i] = offload_array(s->offload, at++);
    if (s->conf.offload.master)
        s->master = offload_array(s->offload, at);
    return plan_tiles(s);
}

void swap_destroy(struct shard *s)
{
    free(s->tile);
    offload_destroy(&s->offload);
}

struct update {
    struct shard *s;
    const struct optim_ops *ops;
    const void *conf;
    const struct optim_step *step;
};

static void update_tile(void *arg, const struct offload_tile *t, float *const *values)
{
    const struct update *u = arg;
    struct shard *s = u->s;
    int row = (int)t->row, n_states = s->conf.n_states, at = 0;
    float *state[OPTIM_MAX_STATES] = {0};
    for (int i = 0; i < n_states; i++)
        state[i] = s->conf.offload.states ? values[at++] : s->state[i] + t->begin;
    float *w = s->conf.offload.master ? values[at] : s->master + t->begin;
    struct shard_part g = shard_own_part(s, SHARD_GRAD, row);
    u->ops->update(u->conf, s->stream, w, g.values + (t->row_begin - g.begin), state,
                   shard_copy_at(s, row, t->row_begin), t->n, &u->step[row]);
}

void swap_update(struct shard *s, const struct optim_ops *ops, const void *conf,
                 const struct optim_step *step)
{
    struct update u = {s, ops, conf, step};
    offload_stream(s->offload, s->tile, s->n_tiles, update_tile, &u);
    offload_forget(s->offload);
}
