/* Linears: several linear layers over one x, with their outputs side by side.  Weights (n_out,
 * n_in) of whole blocks follow each other in memory, since the plan starts every tensor at a block:
 * they are one larger matrix, and it takes one product.  So the way that is taken, and with it
 * every bit, follows from the shapes, and from what is frozen, alone. */
#include "layer/lora.h"

struct linears_conf {
    const struct tensor_table *table; /* borrowed */
    int n;
    int64_t n_in, n_out[LINEARS_MAX], width;
    bool blocks; /* all but the last are whole blocks */
};

/* at[i] are the matrices, elem_bytes their element's. */
static bool contiguous(const struct linears_conf *c, const void *const *at, size_t elem_bytes)
{
    for (int i = 0; i + 1 < c->n; i++) {
        size_t n_bytes = (size_t)(c->n_out[i] * c->n_in) * elem_bytes;
        if (!at[i] || (const char *)at[i] + n_bytes != (const char *)at[i + 1])
            return false;
    }
    return true;
}

/* Frozen and trained tensors lie apart. */
static bool is_whole(const struct module *m)
{
    const struct linears_conf *c = m->conf;
    const struct tensor_row *row = c->table->rows + m->first_row;
    bool whole = c->blocks;
    for (int i = 1; i < c->n; i++)
        whole = whole && (row[i].flags & TENSOR_FROZEN) == (row[0].flags & TENSOR_FROZEN);
    return whole;
}

static void weights(const struct module *m, const struct pass *p, const void **w)
{
    const struct linears_conf *c = m->conf;
    for (int i = 0; i < c->n; i++)
        w[i] = module_weight(m, p, i);
    REQUIRE(p->dry || !is_whole(m) || contiguous(c, w, dtype_bytes(p->compute)));
}

/* Layer i, or all of them as one. */
static struct linear sizes(const struct linears_conf *c, const struct pass *p, int i, bool one)
{
    return (struct linear){
        .M = pass_rows(p), .N = one ? c->width : c->n_out[i], .K = c->n_in, .ldy = c->width};
}

static void linears_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct linears_conf *c = m->conf;
    const void *w[LINEARS_MAX] = {0};
    int64_t first = 0;
    bool whole = is_whole(m);
    weights(m, p, w);
    for (int i = 0; pass_rows(p) > 0 && i < (whole ? 1 : c->n); i++) {
        struct linear l = sizes(c, p, i, whole);
        p->s->k->linear_forward(p->s, &l, pass_at(p, y, first), NULL, x, w[i], NULL);
        first += c->n_out[i];
    }
    for (int i = 0; i < m->n_children; i++)
        module_forward(m->children[i], p, x, y);
}

/* The gradients of the weights, one by one where one product cannot make them all. */
static void weight_gradients(const struct module *m, struct pass *p, const void *x, void *dy,
                             const void *const *w)
{
    const struct linears_conf *c = m->conf;
    int64_t first = 0;
    for (int i = 0; i < c->n; i++) {
        struct linear l = sizes(c, p, i, false);
        float *dw = pass_grad_first(p, m->first_row + i, &l.unset_dw);
        p->s->k->linear_backward(p->s, &l, NULL, dw, NULL, pass_at(p, dy, first), x, w[i], NULL);
        first += c->n_out[i];
    }
}

/* dx = sum of dy_i W_i, and the gradients. */
static void backward_apart(const struct module *m, struct pass *p, const void *x, void *dy,
                           void *dx, const void *const *w)
{
    const struct linears_conf *c = m->conf;
    int64_t n_elem = pass_rows(p) * c->n_in, first = 0;
    size_t mark = stack_mark(&p->s->scratch);
    void *part = scratch_push(p, n_elem);
    for (int i = 0; i < c->n; i++) {
        struct linear l = sizes(c, p, i, false);
        void *to = i == 0 ? dx : part;
        float *dw = pass_grad_first(p, m->first_row + i, &l.unset_dw);
        p->s->k->linear_backward(p->s, &l, to, dw, NULL, pass_at(p, dy, first), x, w[i], NULL);
        if (i > 0)
            p->s->k->add(p->s, dx, dx, part, n_elem);
        first += c->n_out[i];
    }
    stack_release(&p->s->scratch, mark);
}

/* The gradients of all weights as one matrix; they are unset together or not at all. */
static float *all_gradients(const struct module *m, struct pass *p, bool *unset)
{
    const struct linears_conf *c = m->conf;
    float *first = pass_grad_first(p, m->first_row, unset);
    for (int i = 1; i < c->n; i++) {
        bool too;
        (void)pass_grad_first(p, m->first_row + i, &too);
        REQUIRE(too == *unset);
    }
    return first;
}

static void backward_products(const struct module *m, struct pass *p, const void *x, void *dy,
                              void *dx)
{
    const struct linears_conf *c = m->conf;
    const void *w[LINEARS_MAX] = {0}, *g[LINEARS_MAX] = {0};
    if (pass_rows(p) == 0)
        return;
    weights(m, p, w);
    if (dx && !is_whole(m)) {
        backward_apart(m, p, x, dy, dx, w);
        return;
    }
    for (int i = 0; i < c->n; i++)
        g[i] = p->dry ? NULL : p->grad[m->first_row + i];
    bool one = contiguous(c, g, sizeof(float));
    struct linear l = sizes(c, p, 0, true);
    float *dw = one ? all_gradients(m, p, &l.unset_dw) : NULL;
    if (dx || one)
        p->s->k->linear_backward(p->s, &l, dx, dw, NULL, dy, x, w[0], NULL);
    if (!one)
        weight_gradients(m, p, x, dy, w);
}

static void linears_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                             void *dx)
{
    backward_products(m, p, x, dy, dx);
    for (int i = m->n_children - 1; i >= 0; i--)
        module_backward_from(m->children[i], p, x, dy, dx);
}

static const struct module_ops linears_ops = {
    .cls = "Linear", .forward = linears_forward, .backward = linears_backward};

struct module *linears_new(struct builder *b, const char *name, const char *parent, int64_t n_in,
                           const struct linears *l)
{
    REQUIRE(l->n >= 1 && l->n <= LINEARS_MAX);
    struct linears_conf c = {.table = b->table, .n = l->n, .n_in = n_in, .blocks = true};
    for (int i = 0; i < l->n; i++) {
        c.n_out[i] = l->n_out[i];
        c.width += l->n_out[i];
        if (i < l->n - 1 && l->n_out[i] * n_in % BLOCK_ELEMS != 0)
            c.blocks = false;
    }
    const char *full[LINEARS_MAX];
    int n_adapters = 0, n_added = 0;
    for (int i = 0; i < l->n; i++) {
        full[i] = module_path(b, parent, l->name[i]);
        n_adapters += lora_wants(b, full[i]);
    }
    struct module *m = module_new(b, name, &linears_ops, &c, sizeof c, n_adapters);
    for (int i = 0; i < l->n; i++) {
        struct tensor_row w = {
            .name = module_path(b, full[i], "weight"),
            .shape = shape_make(2, l->n_out[i], n_in),
            .flags = TENSOR_DECAY,
            .init = {.kind = INIT_NORMAL, .b = l->std},
            .layout = "out_in",
        };
        tensor_add(b->table, &w);
    }
    m->n_rows = l->n;
    for (int64_t i = 0, first = 0; i < l->n; first += l->n_out[i++])
        if (lora_wants(b, full[i]))
            m->children[n_added++] = lora_new(b, full[i], n_in, l->n_out[i], first, c.width);
    m->n_in = n_in;
    m->n_out = c.width;
    return m;
}
