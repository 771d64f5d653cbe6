/* Decorators that time modules and collectives and forward to what was there before. */
#include "train/trace_impl.h"

#include <stdlib.h>

static void module_before(struct trace_module *x, struct pass *p, const char *name,
                          void (*own)(void *self, struct pass *p))
{
    trace_begin(x->trace, TRACE_COMPUTE, name, x->module->name);
    if (own)
        own(x->own->self, p);
}

static void module_after(struct trace_module *x, struct pass *p,
                         void (*own)(void *self, struct pass *p))
{
    if (own)
        own(x->own->self, p);
    trace_end(x->trace, TRACE_COMPUTE);
}

static void before_forward(void *self, struct pass *p)
{
    struct trace_module *x = self;
    module_before(x, p, x->forward, x->own ? x->own->before_forward : NULL);
}

static void after_forward(void *self, struct pass *p)
{
    struct trace_module *x = self;
    module_after(x, p, x->own ? x->own->after_forward : NULL);
}

static void before_backward(void *self, struct pass *p)
{
    struct trace_module *x = self;
    module_before(x, p, x->backward, x->own ? x->own->before_backward : NULL);
}

static void after_backward(void *self, struct pass *p)
{
    struct trace_module *x = self;
    module_after(x, p, x->own ? x->own->after_backward : NULL);
}

static void count_module(struct module *m, void *arg)
{
    (void)m;
    ++*(int *)arg;
}

static void attach_module(struct module *m, void *arg)
{
    struct trace *t = arg;
    struct trace_module *x = &t->module[t->n_modules++];
    *x = (struct trace_module){
        .trace = t,
        .module = m,
        .own = m->hooks,
        .hooks = {.before_forward = before_forward,
                  .after_forward = after_forward,
                  .before_backward = before_backward,
                  .after_backward = after_backward,
                  .self = x},
        .forward = arena_printf(t->names, "%s forward", m->ops->cls),
        .backward = arena_printf(t->names, "%s backward", m->ops->cls),
    };
    m->hooks = &x->hooks;
}

/* Tasks have a lane of their own, beside the computation that hides them. */
static enum trace_lane lane_of(const struct comm *c)
{
    return comm_in_background(c) ? TRACE_BACKGROUND : TRACE_COMM;
}

/* The communicator as it was; a span of that name is open until comm_end(). */
static struct comm *comm_begin(struct comm *c, const char *name)
{
    struct trace_comm *x = c->impl;
    trace_begin(x->trace, lane_of(c), name, x->own.ops->name);
    return &x->own;
}

static void comm_end(struct comm *c)
{
    struct trace_comm *x = c->impl;
    trace_end(x->trace, lane_of(c));
}

static void timed_all_gather(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    struct comm *own = comm_begin(c, "all_gather");
    own->ops->all_gather(own, buf, cut, elem_bytes);
    comm_end(c);
}

static void timed_reduce_scatter(struct comm *c, float *buf, const int64_t *cut,
                                 int64_t slice_elems, enum dtype dtype, float *scratch)
{
    struct comm *own = comm_begin(c, "reduce_scatter");
    own->ops->reduce_scatter(own, buf, cut, slice_elems, dtype, scratch);
    comm_end(c);
}

/* What was not hidden: the time that computing waits for a task. */
static void timed_wait(struct comm *c, struct comm_task *t)
{
    struct comm *own =
        comm_begin(c, t->what == COMM_ALL_GATHER ? "wait for all_gather" : "wait for sum");
    own->ops->wait(own, t);
    comm_end(c);
}

static void timed_gather(struct comm *c, const void *send, int64_t n, void *all, const int64_t *cut,
                         size_t elem_bytes)
{
    struct comm *own = comm_begin(c, "gather");
    own->ops->gather(own, send, n, all, cut, elem_bytes);
    comm_end(c);
}

static void timed_broadcast(struct comm *c, void *buf, size_t n_bytes, int root)
{
    struct comm *own = comm_begin(c, "broadcast");
    own->ops->broadcast(own, buf, n_bytes, root);
    comm_end(c);
}

static void timed_sum_i64(struct comm *c, int64_t *v, int n)
{
    struct comm *own = comm_begin(c, "sum_i64");
    own->ops->sum_i64(own, v, n);
    comm_end(c);
}

static void timed_max_i64(struct comm *c, int64_t *v, int n)
{
    struct comm *own = comm_begin(c, "max_i64");
    own->ops->max_i64(own, v, n);
    comm_end(c);
}

static void timed_barrier(struct comm *c)
{
    struct comm *own = comm_begin(c, "barrier");
    own->ops->barrier(own);
    comm_end(c);
}

static struct comm *timed_split(struct comm *c, int color, int key)
{
    struct trace_comm *x = c->impl;
    return x->own.ops->split(&x->own, color, key);
}

static void timed_close(struct comm **c)
{
    struct trace_comm *x = (*c)->impl;
    trace_detach(x->trace);
    comm_close(c);
}

static const struct comm_ops timed_ops = {
    .name = "timed",
    .all_gather = timed_all_gather,
    .reduce_scatter = timed_reduce_scatter,
    .wait = timed_wait,
    .gather = timed_gather,
    .broadcast = timed_broadcast,
    .sum_i64 = timed_sum_i64,
    .max_i64 = timed_max_i64,
    .barrier = timed_barrier,
    .split = timed_split,
    .close = timed_close,
};
_Static_assert(sizeof(struct comm_ops) == 11 * sizeof(void *),
               "a collective that is not in timed_ops would be missing while a trace is attached");

int trace_attach(struct trace *t, struct module *root, struct comm *c)
{
    if (!t)
        return ERR_OK;
    REQUIRE(!t->module && !t->comm[0].timed);
    if (root) {
        int n = 0;
        module_walk(root, count_module, &n);
        t->module = calloc((size_t)n, sizeof *t->module);
        if (!t->module)
            FAIL(ERR_RESOURCE, "out of memory for the trace of %d modules", n);
        module_walk(root, attach_module, t);
    }
    trace_attach_comm(t, c);
    return ERR_OK;
}

void trace_attach_comm(struct trace *t, struct comm *c)
{
    int i = 0;
    if (!t || !c)
        return;
    while (i < TRACE_COMMS && t->comm[i].timed)
        i++;
    REQUIRE(i < TRACE_COMMS);
    t->comm[i] = (struct trace_comm){.trace = t, .timed = c, .own = *c};
    c->ops = &timed_ops;
    c->impl = &t->comm[i];
}

void trace_detach(struct trace *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_modules; i++)
        t->module[i].module->hooks = t->module[i].own;
    free(t->module);
    t->module = NULL;
    t->n_modules = 0;
    for (int i = 0; i < TRACE_COMMS; i++) {
        if (!t->comm[i].timed)
            continue;
        t->comm[i].timed->ops = t->comm[i].own.ops;
        t->comm[i].timed->impl = t->comm[i].own.impl;
        t->comm[i].timed = NULL;
    }
}
