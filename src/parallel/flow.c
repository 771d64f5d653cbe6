/* The rules, and a run of them without memory. */
#include "parallel/flow.h"

#include "parallel/pool.h"
#include <stdint.h>
#include <stdlib.h>

static int unit_of(const struct plan *p, const struct module *m)
{
    for (int u = 0; u < p->n_units; u++)
        if (p->unit[u].module == m)
            return u;
    return -1;
}

/* The module's units: a trained one, a frozen one, or both. */
static bool is_same(const struct flow *f, int unit, int u)
{
    return u < f->plan->n_units && f->plan->unit[u].module == f->plan->unit[unit].module &&
           !f->plan->unit[u].persists;
}

static void order_forward(struct flow *f)
{
    for (int u = 0; u < f->plan->n_units; u++) {
        const struct plan_unit *x = &f->plan->unit[u];
        if (x->persists && !x->frozen)
            f->rider = u;
        if (x->persists || (u > 0 && is_same(f, u - 1, u)))
            continue;
        f->forward_place[u] = f->n_modules;
        f->forward[f->n_modules++] = u;
    }
}

/* Backward enters modules as forward left them, last one first; some have none. */
static void order_backward(struct flow *f, const struct module *m)
{
    int u = unit_of(f->plan, m);
    if (m->still)
        return;
    if (u >= 0) {
        f->backward_place[u] = f->n_backward;
        f->backward[f->n_backward++] = u;
    }
    for (int i = m->n_children - 1; i >= 0; i--)
        order_backward(f, m->children[i]);
}

static void *zeroed(int n, size_t item_bytes)
{
    void *p = calloc((size_t)n, item_bytes);
    if (!p)
        FATAL("out of memory for the order of %d units", n);
    return p;
}

void flow_init(struct flow *f, const struct plan *p, const struct overlap *o, bool forms,
               const struct flow_ops *ops, void *self)
{
    *f = (struct flow){.plan = p, .overlap = *o, .ops = ops, .self = self, .forms = forms};
    f->forward = zeroed(p->n_units, sizeof *f->forward);
    f->backward = zeroed(p->n_units, sizeof *f->backward);
    f->forward_place = zeroed(p->n_units, sizeof *f->forward_place);
    f->backward_place = zeroed(p->n_units, sizeof *f->backward_place);
    f->unit = zeroed(p->n_units, sizeof *f->unit);
    f->summing = zeroed(p->n_units, sizeof *f->summing);
    order_forward(f);
    order_backward(f, p->unit[0].module);
    REQUIRE(f->n_backward <= f->n_modules);
}

void flow_clear(struct flow *f)
{
    free(f->forward);
    free(f->backward);
    free(f->forward_place);
    free(f->backward_place);
    free(f->unit);
    free(f->summing);
    *f = (struct flow){0};
}

static void gather(struct flow *f, int unit, bool now)
{
    for (int u = unit; f->plan->policy->shard_params && is_same(f, unit, u); u++) {
        if (f->unit[u].gathered || f->plan->unit[u].n_elem == 0)
            continue;
        f->unit[u].gathered = true;
        f->ops->gather(f->self, u, f->unit[u].left, now);
    }
}

static void need(struct flow *f, int unit)
{
    for (int u = unit; f->plan->policy->shard_params && is_same(f, unit, u); u++) {
        if (f->unit[u].needed || !f->unit[u].gathered)
            continue;
        f->unit[u].needed = true;
        f->ops->need(f->self, u);
    }
}

static void release(struct flow *f, int unit, bool leaves)
{
    for (int u = unit; is_same(f, unit, u); u++) {
        if (f->unit[u].gathered)
            f->ops->release(f->self, u, leaves && !f->unit[u].left);
        f->unit[u].left |= f->unit[u].gathered && leaves;
        f->unit[u].gathered = f->unit[u].needed = false;
    }
}

/* Weights may be others than those of the last forward. */
static void begin(struct flow *f)
{
    for (int u = 0; u < f->plan->n_units; u++)
        f->unit[u].left = false;
}

static void form(struct flow *f, int unit)
{
    const struct plan_unit *u = &f->plan->unit[unit];
    if (!f->forms || f->unit[unit].forming || u->frozen || u->module->still)
        return;
    f->unit[unit].forming = true;
    f->ops->form(f->self, unit);
}

/* Modules that come next in an order of n, from a place on. */
static void prefetch(struct flow *f, const int *order, int n, int place)
{
    int64_t n_elem = 0;
    for (int i = 0; i < f->overlap.ahead && n_elem < f->overlap.ahead_elems; i++) {
        if (place + i >= n)
            return;
        int unit = order[place + i];
        for (int u = unit; is_same(f, unit, u); u++)
            n_elem += f->plan->unit[u].n_elem;
        gather(f, unit, false);
    }
}

static void end_sums(struct flow *f, int n_left)
{
    int n = f->n_summing - n_left;
    for (int i = 0; i < n; i++) {
        f->unit[f->summing[i]].forming = false;
        f->ops->end_sum(f->self, f->summing[i]);
    }
    for (int i = 0; i < n_left && n > 0; i++)
        f->summing[i] = f->summing[n + i];
    f->n_summing = n_left;
}

void flow_before_forward(struct flow *f, int unit, bool training)
{
    const struct plan_unit *u = &f->plan->unit[unit];
    if (unit == 0)
        begin(f);
    gather(f, unit, true);
    need(f, unit);
    if (f->overlap.forward && !f->backwards)
        prefetch(f, f->forward, f->n_modules, f->forward_place[unit] + 1);
    bool rides = unit == 0 && f->rider > 0;
    if (training && (u->early_grad || u->encloses || rides))
        form(f, unit);
    if (training && rides)
        form(f, f->rider);
}

void flow_after_forward(struct flow *f, int unit, bool training)
{
    const struct plan_unit *u = &f->plan->unit[unit];
    if (!training || !u->keep)
        release(f, unit, training && !u->module->still);
}

void flow_before_backward(struct flow *f, int unit)
{
    gather(f, unit, true);
    need(f, unit);
    f->reached = f->backward_place[unit];
    f->backwards = true;
    if (f->overlap.backward == PREFETCH_PRE)
        prefetch(f, f->backward, f->n_backward, f->reached + 1);
    form(f, unit);
}

static void sum(struct flow *f, int unit, bool now)
{
    if (f->plan->unit[unit].frozen)
        return;
    f->ops->sum(f->self, unit, now && f->n_summing == 0);
    f->summing[f->n_summing++] = unit;
}

/* The root's backward ends last: nothing is left to hide its sum behind. */
void flow_after_backward(struct flow *f, int unit, bool sums)
{
    bool later = f->overlap.sums && unit != 0;
    if (sums && unit == 0 && f->rider > 0)
        sum(f, f->rider, true);
    if (sums)
        sum(f, unit, !later);
    end_sums(f, later && f->n_summing > 0 ? 1 : 0);
    release(f, unit, false);
    if (f->overlap.backward == PREFETCH_POST)
        prefetch(f, f->backward, f->n_backward, f->reached + 1);
    f->backwards = unit != 0;
}

/* A run that only counts. */
struct counting {
    const struct plan *plan;
    struct pool gathered, grads;
    size_t elem_bytes;
    size_t *gathered_at, *grad_at; /* owned */
    int64_t n[2];                  /* elements gathered first, again */
};

static void count_gather(void *self, int unit, bool again, bool now)
{
    struct counting *c = self;
    int64_t n_elem = c->plan->unit[unit].n_elem;
    (void)now;
    c->gathered_at[unit] = pool_take(&c->gathered, (size_t)n_elem * c->elem_bytes);
    c->n[again] += n_elem;
}

static void count_release(void *self, int unit, bool leaves)
{
    struct counting *c = self;
    (void)leaves;
    pool_give(&c->gathered, c->gathered_at[unit]);
}

static void count_form(void *self, int unit)
{
    struct counting *c = self;
    c->grad_at[unit] = pool_take(&c->grads, (size_t)c->plan->unit[unit].n_elem * sizeof(float));
}

static void count_nothing(void *self, int unit)
{
    (void)self;
    (void)unit;
}

static void count_no_sum(void *self, int unit, bool now)
{
    (void)self;
    (void)unit;
    (void)now;
}

static void count_end_sum(void *self, int unit)
{
    struct counting *c = self;
    if (c->grads.n > 0)
        pool_give(&c->grads, c->grad_at[unit]);
}

static void pass_forward(struct flow *f, const struct module *m, bool training)
{
    int u = unit_of(f->plan, m);
    if (u >= 0)
        flow_before_forward(f, u, training);
    for (int i = 0; i < m->n_children; i++)
        pass_forward(f, m->children[i], training);
    if (u >= 0)
        flow_after_forward(f, u, training);
}

static void pass_backward(struct flow *f, const struct module *m)
{
    int u = unit_of(f->plan, m);
    if (m->still)
        return;
    if (u >= 0)
        flow_before_backward(f, u);
    for (int i = 0; i < m->n_children && m->recompute; i++)
        pass_forward(f, m->children[i], true);
    for (int i = m->n_children - 1; i >= 0; i--)
        pass_backward(f, m->children[i]);
    if (u >= 0)
        flow_after_backward(f, u, true);
}

void flow_measure(const struct plan *p, const struct overlap *o, bool forms, size_t elem_bytes,
                  struct flow_needs *out)
{
    static const struct flow_ops counting_ops = {.gather = count_gather,
                                                 .need = count_nothing,
                                                 .release = count_release,
                                                 .form = count_form,
                                                 .sum = count_no_sum,
                                                 .end_sum = count_end_sum};
    struct counting c = {.plan = p, .elem_bytes = elem_bytes};
    struct flow f;
    pool_init(&c.gathered, p->n_units, SIZE_MAX);
    pool_init(&c.grads, p->n_units, SIZE_MAX);
    c.gathered_at = zeroed(p->n_units, sizeof *c.gathered_at);
    c.grad_at = zeroed(p->n_units, sizeof *c.grad_at);
    flow_init(&f, p, o, forms, &counting_ops, &c);
    pass_forward(&f, p->unit[0].module, false);
    c.n[0] = c.n[1] = 0;
    pass_forward(&f, p->unit[0].module, true);
    pass_backward(&f, p->unit[0].module);
    REQUIRE(c.gathered.n == 0 && c.grads.n == 0);
    *out = (struct flow_needs){
        .gathered = c.gathered.peak, .grads = c.grads.peak, .n_first = c.n[0], .n_again = c.n[1]};
    flow_clear(&f);
    pool_clear(&c.gathered);
    pool_clear(&c.grads);
    free(c.gathered_at);
    free(c.grad_at);
}
