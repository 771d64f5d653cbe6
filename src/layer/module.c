/* Running modules: hooks, the tape with its frames, and the small things that every class needs. */
#include "layer/layers.h"

#include "base/hash.h"
#include <math.h>
#include <string.h>

/* Closes every module's part of the frames stack: whose it is and where its tape began. */
struct header {
    const struct module *m;
    size_t tape;
    const void *x; /* forward's, a norm's sum */
};

static void fire(void (*hook)(void *self, struct pass *p), const struct module *m, struct pass *p)
{
    if (hook)
        hook(m->hooks->self, p);
}

static void *push_record(struct pass *p, size_t n_bytes)
{
    REQUIRE(!p->frames->counting);
    return stack_push(p->frames, n_bytes);
}

void *frame_push(struct pass *p, size_t n_bytes)
{
    REQUIRE(n_bytes <= FRAME_BYTES_MAX - STACK_ALIGN);
    return push_record(p, n_bytes);
}

void *frame_pop(struct pass *p, size_t n_bytes)
{
    size_t need = (n_bytes + STACK_ALIGN - 1) & ~(size_t)(STACK_ALIGN - 1);
    REQUIRE(p->frames->top >= need);
    stack_release(p->frames, p->frames->top - need);
    return p->frames->base + p->frames->top;
}

struct mark {
    size_t tape, frames;
};

static struct mark begin(const struct module *m, struct pass *p)
{
    if (m->hooks)
        fire(m->hooks->before_forward, m, p);
    return (struct mark){.tape = stack_mark(p->tape), .frames = stack_mark(p->frames)};
}

/* Leaf first: children end before their parents, so the first name is where it began. */
static void look_for_nonfinite(const struct module *m, struct pass *p, const void *y)
{
    int64_t n_bad = 0;
    if (y && m->n_out > 0)
        p->s->k->count_nonfinite(p->s, &n_bad, y, pass_rows(p) * m->n_out);
    else if (p->loss_sum)
        n_bad = !isfinite(*p->loss_sum);
    if (n_bad > 0)
        p->bad = m->name[0] ? m->name : m->ops->cls;
}

static void end(const struct module *m, struct pass *p, struct mark mark, const void *x,
                const void *y)
{
    if (p->check && !p->dry && !p->bad)
        look_for_nonfinite(m, p, y);
    if (!p->training || m->recompute || m->still) {
        stack_release(p->tape, mark.tape);
        stack_release(p->frames, mark.frames);
    }
    if (p->training) {
        struct header *h = push_record(p, sizeof *h);
        *h = (struct header){.m = m, .tape = mark.tape, .x = x};
    }
    if (m->hooks)
        fire(m->hooks->after_forward, m, p);
}

void module_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    struct mark mark = begin(m, p);
    m->ops->forward(m, p, x, y);
    end(m, p, mark, x, y);
}

void module_forward_residual(const struct module *m, struct pass *p, const void *x,
                             const void *residual, void *sum, void *y)
{
    REQUIRE(m->ops->forward_residual && !m->recompute);
    struct mark mark = begin(m, p);
    m->ops->forward_residual(m, p, x, residual, sum, y);
    end(m, p, mark, sum, y);
}

/* x NULL: it lies where forward read it. */
static void backward(const struct module *m, struct pass *p, const void *x, void *dy, void *dx)
{
    if (m->hooks && !m->still)
        fire(m->hooks->before_backward, m, p);
    struct header h = *(struct header *)frame_pop(p, sizeof h);
    if (h.m != m)
        FATAL("backward of \"%s\" where \"%s\" ran forward last", m->name, h.m->name);
    if (m->still)
        return;
    if (m->lowest && !m->ops->loss_head)
        dx = NULL;
    size_t mark = stack_mark(&p->s->scratch);
    x = x ? x : h.x;
    if (m->recompute) /* its parameters are whole already: backward's hooks saw to that */
        m->ops->forward(m, p, x, scratch_push(p, pass_rows(p) * m->n_out));
    m->ops->backward(m, p, x, dy, dx);
    stack_release(&p->s->scratch, mark);
    stack_release(p->tape, h.tape);
    if (m->hooks)
        fire(m->hooks->after_backward, m, p);
}

void module_backward(const struct module *m, struct pass *p, void *dy, void *dx)
{
    backward(m, p, NULL, dy, dx);
}

void module_backward_from(const struct module *m, struct pass *p, const void *x, void *dy, void *dx)
{
    backward(m, p, x, dy, dx);
}

static size_t bytes_of(const struct pass *p, int64_t n_elem)
{
    return (size_t)n_elem * dtype_bytes(p->compute);
}

static void see_reach(const struct pass *p, int row)
{
    int64_t top = (int64_t)stack_mark(p->tape);
    p->reach[row] = top > p->reach[row] ? top : p->reach[row];
}

static void *push(struct pass *p, size_t n_bytes)
{
    void *at = stack_push(p->tape, n_bytes);
    for (int row = 0; p->reach && row < p->n_reach; row++)
        if (p->reach[row] >= 0)
            see_reach(p, row);
    return at;
}

void *tape_push(struct pass *p, int64_t n_elem)
{
    return push(p, bytes_of(p, n_elem));
}

float *tape_push_f32(struct pass *p, int64_t n_elem)
{
    return push(p, (size_t)n_elem * sizeof(float));
}

void *scratch_push(struct pass *p, int64_t n_elem)
{
    return stack_push(&p->s->scratch, bytes_of(p, n_elem));
}

float *scratch_push_f32(struct pass *p, int64_t n_elem)
{
    return stack_push(&p->s->scratch, (size_t)n_elem * sizeof(float));
}

void pass_zero(struct pass *p, void *y, int64_t n_elem)
{
    if (!p->dry && n_elem > 0)
        p->s->dev->mem->zero(p->s, y, bytes_of(p, n_elem));
}

void *pass_at(const struct pass *p, void *base, int64_t n_elem)
{
    return (char *)base + bytes_of(p, n_elem);
}

const void *pass_at_const(const struct pass *p, const void *base, int64_t n_elem)
{
    return (const char *)base + bytes_of(p, n_elem);
}

int64_t pass_rows(const struct pass *p)
{
    return p->batch->T > 0 ? p->batch->B * p->batch->T : p->batch->B;
}

const void *module_weight(const struct module *m, const struct pass *p, int i)
{
    return p->dry || i >= m->n_rows ? NULL : p->weight[m->first_row + i];
}

float *pass_grad_first(const struct pass *p, int row, bool *unset)
{
    float *g = p->dry ? NULL : p->grad[row];
    if (p->reach)
        see_reach(p, row);
    *unset = g && p->unset && p->unset[row] > 0;
    if (*unset)
        p->unset[row] = 0;
    return g;
}

float *pass_grad(const struct pass *p, int row)
{
    int64_t n_elem = p->dry || !p->unset ? 0 : p->unset[row];
    bool unset;
    float *g = pass_grad_first(p, row, &unset);
    if (unset)
        p->s->dev->mem->zero(p->s, g, (size_t)n_elem * sizeof *g);
    return g;
}

float *module_grad(const struct module *m, const struct pass *p, int i)
{
    return i < m->n_rows ? pass_grad(p, m->first_row + i) : NULL;
}

struct rng_key module_key(const struct module *m, const struct pass *p)
{
    uint64_t seed = (uint64_t)p->key.k[1] << 32 | p->key.k[0];
    return rng_key_make(seed, hash64_string(m->name));
}

bool module_drops(const struct pass *p, float rate)
{
    return p->training && rate > 0;
}

void module_dropout(const struct module *m, struct pass *p, float rate, void *y, const void *x,
                    int64_t C)
{
    int64_t B = p->batch->B;
    if (B == 0)
        return;
    struct dropout d = {.p = rate, .key = module_key(m, p), .sample = p->batch->sample};
    p->s->k->dropout(p->s, y, x, &d, B, pass_rows(p) / B * C);
}

/* Children run in order, behind what the module itself has.  before: something that ran before m is
 * trained; returns the same for what runs behind it. */
static bool mark_still(struct module *m, const struct tensor_table *table, bool before)
{
    bool any = before;
    for (int i = 0; i < m->n_rows; i++)
        any = any || !(table->rows[m->first_row + i].flags & TENSOR_FROZEN);
    for (int i = 0; i < m->n_children; i++)
        any = mark_still(m->children[i], table, any);
    m->lowest = !before;
    m->still = !any;
    return any;
}

void module_mark_still(struct module *root, const struct tensor_table *table)
{
    (void)mark_still(root, table, false);
}

void module_walk(struct module *m, void (*f)(struct module *m, void *arg), void *arg)
{
    f(m, arg);
    for (int i = 0; i < m->n_children; i++)
        module_walk(m->children[i], f, arg);
}

struct module *module_new(struct builder *b, const char *name, const struct module_ops *ops,
                          const void *conf, size_t conf_bytes, int n_children)
{
    struct module *m = arena_alloc(b->arena, sizeof *m);
    void *own_conf = arena_alloc(b->arena, conf_bytes);
    if (conf_bytes)
        memcpy(own_conf, conf, conf_bytes);
    *m = (struct module){
        .name = arena_strdup(b->arena, name),
        .ops = ops,
        .conf = own_conf,
        .first_row = b->table->n_rows,
        .children = arena_alloc(b->arena, (size_t)n_children * sizeof *m->children),
        .n_children = n_children,
    };
    return m;
}

const char *module_path(struct builder *b, const char *parent, const char *child)
{
    return parent[0] ? arena_printf(b->arena, "%s.%s", parent, child)
                     : arena_strdup(b->arena, child);
}
