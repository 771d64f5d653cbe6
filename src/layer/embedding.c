/* Embedding: rows of a token table plus rows of a position table, then dropout.  The module bears
 * the token table's name. */
#include "layer/layers.h"

struct embedding_conf {
    int64_t V, T, C; /* T 0: no positions */
    float dropout;
};

static void embedding_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct embedding_conf *c = m->conf;
    const struct batch *b = p->batch;
    (void)x;
    REQUIRE(c->T == 0 || b->T <= c->T);
    if (b->B > 0)
        p->s->k->embedding_forward(p->s, y, b->ids, module_weight(m, p, 0), module_weight(m, p, 1),
                                   b->B, b->T, c->C);
    if (module_drops(p, c->dropout))
        module_dropout(m, p, c->dropout, y, y, c->C);
}

static void embedding_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                               void *dx)
{
    (void)x;
    const struct embedding_conf *c = m->conf;
    const struct batch *b = p->batch;
    REQUIRE(!dx);
    if (module_drops(p, c->dropout))
        module_dropout(m, p, c->dropout, dy, dy, c->C);
    if (b->B > 0)
        p->s->k->embedding_backward(p->s, module_grad(m, p, 0), module_grad(m, p, 1), dy, b->ids,
                                    b->B, b->T, c->C, c->V);
}

static const struct module_ops embedding_ops = {
    .cls = "Embedding", .forward = embedding_forward, .backward = embedding_backward};

static void add_table(struct builder *b, const char *name, int64_t n_rows, int64_t C, float std)
{
    struct tensor_row r = {.name = module_path(b, name, "weight"),
                           .shape = shape_make(2, n_rows, C),
                           .flags = TENSOR_DECAY,
                           .init = {.kind = INIT_NORMAL, .a = 0.0f, .b = std},
                           .layout = "plain"};
    tensor_add(b->table, &r);
}

struct module *embedding_new(struct builder *b, const char *wte, const char *wpe, int64_t V,
                             int64_t T, int64_t C, float std, float dropout)
{
    struct embedding_conf c = {.V = V, .T = T, .C = C, .dropout = dropout};
    struct module *m = module_new(b, wte, &embedding_ops, &c, sizeof c, 0);
    add_table(b, wte, V, C, std);
    if (T > 0)
        add_table(b, wpe, T, C, std);
    m->n_rows = T > 0 ? 2 : 1;
    m->n_out = C;
    return m;
}
