/* PowerSGD over the whole model at once, at the end of a step: two sums over the ranks. */
#include "parallel/power_sgd.h"

#include "base/hash.h"
#include "parallel/shard_impl.h"
#include <stdlib.h>

struct matrix {
    int64_t n, m, r; /* r = 0: not compressed, n elements */
    int64_t q, p;    /* where they begin */
};

struct power_sgd {
    struct shard *s; /* borrowed */
    const struct power_sgd_conf *conf;
    const struct kernels *k; /* fp32 */
    struct power_sgd_sizes size;
    struct matrix *of;      /* owned: by row */
    float *error;           /* owned: ranks times what this one's gradients missed */
    float *q, *p, *scratch; /* owned */
    int64_t *cut;           /* owned: (ranks + 1) */
    bool has_q;             /* of a step before */
};

bool power_sgd_compresses(const struct model *m, const struct power_sgd_conf *c, int row,
                          int64_t *r)
{
    const struct tensor_row *t = &m->table.rows[row];
    int64_t n = t->shape.dim[0], k = t->shape.dim[1], rank = c->matrix_approximation_rank;
    *r = 0;
    if (t->shape.n_dims != 2 || (t->flags & TENSOR_FROZEN))
        return false;
    rank = rank > n ? n : rank;
    rank = rank > k ? k : rank;
    if ((double)(n + k) * (double)rank * c->min_compression_rate >= (double)n * (double)k)
        return false;
    *r = rank;
    return true;
}

/* Where each row's P and Q lie; of may be NULL. */
static void lay_out(const struct plan *p, const struct model *m, const struct power_sgd_conf *c,
                    struct matrix *of, struct power_sgd_sizes *out)
{
    *out = (struct power_sgd_sizes){.error = c->use_error_feedback ? p->n_train : 0};
    for (int i = 0; i < p->n_trained; i++) {
        int row = p->trained[i];
        const struct shape *shape = &m->table.rows[row].shape;
        struct matrix x = {.n = shape_elems(shape), .q = out->q, .p = out->p};
        if (power_sgd_compresses(m, c, row, &x.r)) {
            x.n = shape->dim[0];
            x.m = shape->dim[1];
        }
        out->q += x.m * x.r;
        out->p += x.r ? x.n * x.r : x.n;
        if (of)
            of[row] = x;
    }
}

static int64_t scratch_elems(const struct plan *p, const struct shard_conf *c)
{
    int64_t most = p->size * shard_slice_elems(c, p->size);
    return p->n_train < most ? p->n_train : most;
}

void power_sgd_measure(const struct plan *p, const struct model *m, const struct shard_conf *c,
                       struct power_sgd_sizes *out)
{
    lay_out(p, m, &c->power_sgd, NULL, out);
    out->scratch = scratch_elems(p, c);
}

static int take(struct power_sgd *w, int64_t n_elem, float **out)
{
    *out = w->s->stream->dev->mem->alloc((size_t)n_elem * sizeof **out);
    if (!*out)
        FAIL(ERR_RESOURCE, "no memory for %lld values of PowerSGD on rank %d", (long long)n_elem,
             w->s->comm->rank);
    return ERR_OK;
}

static int fill_in(struct power_sgd *w)
{
    const struct shard *s = w->s;
    w->of = calloc((size_t)s->plan->n_rows + 1, sizeof *w->of);
    w->cut = calloc((size_t)s->comm->size + 1, sizeof *w->cut);
    if (!w->of || !w->cut)
        FAIL(ERR_RESOURCE, "no memory for PowerSGD's tables on rank %d", s->comm->rank);
    lay_out(s->plan, s->model, w->conf, w->of, &w->size);
    if (w->size.error)
        TRY(take(w, w->size.error, &w->error));
    w->size.scratch = scratch_elems(s->plan, &s->conf);
    TRY(take(w, w->size.scratch, &w->scratch));
    TRY(take(w, w->size.q, &w->q));
    return take(w, w->size.p, &w->p);
}

int power_sgd_create(struct shard *s, struct power_sgd **out)
{
    REQUIRE(!s->row->shard_optim && !s->replicas);
    struct power_sgd *w = calloc(1, sizeof *w);
    if (!w)
        FATAL("out of memory");
    *w = (struct power_sgd){
        .s = s, .conf = &s->conf.power_sgd, .k = device_kernels(s->stream->dev, DTYPE_F32)};
    int rc = fill_in(w);
    if (rc != ERR_OK)
        power_sgd_destroy(&w);
    *out = w;
    return rc;
}

void power_sgd_destroy(struct power_sgd **power)
{
    struct power_sgd *w = *power;
    if (!w)
        return;
    const struct memory_ops *mem = w->s->stream->dev->mem;
    if (w->error)
        mem->free(w->error, (size_t)w->size.error * sizeof *w->error);
    if (w->scratch)
        mem->free(w->scratch, (size_t)w->size.scratch * sizeof *w->scratch);
    if (w->q)
        mem->free(w->q, (size_t)w->size.q * sizeof *w->q);
    if (w->p)
        mem->free(w->p, (size_t)w->size.p * sizeof *w->p);
    free(w->of);
    free(w->cut);
    free(w);
    *power = NULL;
}

/* All of it on every rank, in the tree of all sums. */
static void sum(struct power_sgd *w, float *x, int64_t n_elem)
{
    struct comm *c = w->s->comm;
    for (int r = 0; r <= c->size; r++)
        w->cut[r] = n_elem * r / c->size;
    c->ops->reduce_scatter(c, x, w->cut, shard_slice_elems(&w->s->conf, c->size), DTYPE_F32,
                           w->scratch);
    c->ops->all_gather(c, x, w->cut, sizeof *x);
}

static void first_q(struct power_sgd *w, int row, int64_t step)
{
    const struct matrix *x = &w->of[row];
    const struct init_rule normal = {.kind = INIT_NORMAL, .a = 0, .b = 1};
    uint64_t name = hash64_string(w->s->model->table.rows[row].name);
    struct rng_key key = rng_key_make(w->conf->seed, hash64(&step, sizeof step, name));
    w->k->fill(w->s->stream, w->q + x->q, &normal, key, 0, x->m * x->r);
    w->k->orthonormalize(w->s->stream, w->q + x->q, x->m, x->r, 1, x->m);
}

/* What the others need of this rank's gradient, into p. */
static void compress(struct power_sgd *w, int row, int64_t step)
{
    const struct matrix *x = &w->of[row];
    struct stream *s = w->s->stream;
    int64_t at = w->s->plan->place[row].begin, n = x->n * x->m, P = w->s->comm->size;
    float *g = w->s->grad + at, *e = w->error ? w->error + at : NULL;
    if (x->r == 0) {
        w->k->cast(s, w->p + x->p, g, x->n);
        return;
    }
    if (e) {
        w->k->add_scaled(s, g, n, e, 1.0f / (float)P, 1, n);
        w->k->cast(s, e, g, n);
        w->k->scale(s, e, (float)P, n);
    }
    if (!w->has_q || !w->conf->warm_start)
        first_q(w, row, w->conf->warm_start ? 0 : step);
    struct linear l = {.M = x->n, .N = x->r, .K = x->m};
    w->k->linear_forward(s, &l, w->p + x->p, NULL, g, w->q + x->q, NULL);
}

/* P is all ranks': its directions, and this rank's Q for them. */
static void project(struct power_sgd *w, int row)
{
    const struct matrix *x = &w->of[row];
    struct stream *s = w->s->stream;
    if (x->r == 0)
        return;
    w->k->orthonormalize(s, w->p + x->p, x->n, x->r, x->r, 1);
    s->dev->mem->zero(s, w->q + x->q, (size_t)(x->m * x->r) * sizeof *w->q);
    struct linear l = {.M = x->n, .N = x->r, .K = x->m};
    w->k->linear_backward(s, &l, NULL, w->q + x->q, NULL, w->p + x->p,
                          w->s->grad + w->s->plan->place[row].begin, NULL, NULL);
}

static void decompress(struct power_sgd *w, int row)
{
    const struct matrix *x = &w->of[row];
    struct stream *s = w->s->stream;
    int64_t at = w->s->plan->place[row].begin, n = x->n * x->m;
    float *g = w->s->grad + at;
    if (x->r == 0) {
        w->k->cast(s, g, w->p + x->p, x->n);
        return;
    }
    struct linear l = {.M = x->n, .N = x->m, .K = x->r, .in_out = true};
    w->k->linear_forward(s, &l, g, NULL, w->p + x->p, w->q + x->q, NULL);
    if (w->error)
        w->k->add_scaled(s, w->error + at, n, g, -1.0f, 1, n);
}

static void sum_units(struct power_sgd *w)
{
    struct shard *s = w->s;
    for (int u = 0; u < s->plan->n_units; u++) {
        const struct plan_unit *x = &s->plan->unit[u];
        float *g = s->grad + x->begin;
        if (x->frozen)
            continue;
        s->comm->ops->reduce_scatter(s->comm, g, x->cut, shard_slice_elems(&s->conf, s->comm->size),
                                     s->conf.reduce, w->scratch);
        s->comm->ops->all_gather(s->comm, g, x->cut, sizeof *g);
    }
}

void power_sgd_sum(struct power_sgd *w, int64_t step)
{
    const struct plan *p = w->s->plan;
    if (step <= w->conf->start_iter) {
        sum_units(w);
        return;
    }
    for (int i = 0; i < p->n_trained; i++)
        compress(w, p->trained[i], step);
    w->has_q = true;
    sum(w, w->p, w->size.p);
    for (int i = 0; i < p->n_trained; i++)
        project(w, p->trained[i]);
    sum(w, w->q, w->size.q);
    for (int i = 0; i < p->n_trained; i++)
        decompress(w, p->trained[i]);
}

void power_sgd_settle(struct power_sgd *w)
{
    if (!w->error)
        return;
    sum(w, w->error, w->size.error);
    w->k->scale(w->s->stream, w->error, 1.0f / (float)w->s->comm->size, w->size.error);
}

void power_sgd_loaded(struct power_sgd *w, int64_t n_saved)
{
    double sum = 0;
    int size = w->s->comm->size;
    /* every rank has the mean; what all of them owe together stays what it was */
    if (w->error && n_saved > 0 && n_saved != size)
        w->k->scale(w->s->stream, w->error, (float)n_saved / (float)size, w->size.error);
    w->k->sum_f64(w->s->stream, &sum, w->q, w->size.q);
    w->has_q = sum != 0;
}

float *power_sgd_error(struct power_sgd *w)
{
    return w->error;
}

float *power_sgd_q(struct power_sgd *w, int row)
{
    return w->of[row].r > 0 ? w->q + w->of[row].q : NULL;
}
