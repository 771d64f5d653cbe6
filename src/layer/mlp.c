/* MLP of a GPT-2 block: widen, activate, narrow. */
#include "layer/layers.h"

struct mlp_conf {
    int64_t C, hidden;
    float dropout;
};

enum { C_FC, C_PROJ, N_CHILDREN };

static void mlp_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct mlp_conf *c = m->conf;
    void *h = tape_push(p, pass_rows(p) * c->hidden);
    module_forward(m->children[C_FC], p, x, h);
    module_forward(m->children[C_PROJ], p, h, y);
    if (module_drops(p, c->dropout))
        module_dropout(m->children[C_PROJ], p, c->dropout, y, y, c->C);
}

static void mlp_backward(const struct module *m, struct pass *p, void *dy, void *dx)
{
    const struct mlp_conf *c = m->conf;
    int64_t rows = pass_rows(p);
    size_t mark = stack_mark(&p->s->scratch);
    void *dh = scratch_push(p, rows * c->hidden);
    if (module_drops(p, c->dropout)) {
        void *dropped = scratch_push(p, rows * c->C);
        module_dropout(m->children[C_PROJ], p, c->dropout, dropped, dy, c->C);
        dy = dropped;
    }
    module_backward(m->children[C_PROJ], p, dy, dh);
    module_backward(m->children[C_FC], p, dh, dx);
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops mlp_ops = {
    .cls = "MLP", .forward = mlp_forward, .backward = mlp_backward};

struct module *mlp_new(struct builder *b, const char *name, const struct branch *br, int64_t hidden,
                       enum act_kind act)
{
    struct mlp_conf c = {.C = br->C, .hidden = hidden, .dropout = br->dropout};
    struct module *m = module_new(b, name, &mlp_ops, &c, sizeof c, N_CHILDREN);
    struct linear_rules in = {.weight = {.kind = INIT_NORMAL, .b = br->std}};
    struct linear_rules out = {.weight = {.kind = INIT_NORMAL, .b = br->proj_std}};
    m->children[C_FC] =
        linear_new(b, module_path(b, name, "c_fc"), br->C, hidden, br->bias, true, act, &in);
    m->children[C_PROJ] = linear_new(b, module_path(b, name, "c_proj"), hidden, br->C, br->bias,
                                     true, ACT_NONE, &out);
    m->n_in = m->n_out = br->C;
    return m;
}
