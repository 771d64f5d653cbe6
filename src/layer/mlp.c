/* MLP of a GPT-2 block: widen, activate, narrow. */
#include "layer/layers.h"

struct mlp_conf {
    int64_t C, hidden;
    enum act_kind act;
    float dropout;
};

struct mlp_frame {
    void *pre; /* (rows, hidden) before the activation, which is cheaper made again than kept */
};

enum { C_FC, C_PROJ, N_CHILDREN };

/* In scratch. */
static void *activated(const struct mlp_conf *c, struct pass *p, const void *pre)
{
    int64_t n_elem = pass_rows(p) * c->hidden;
    void *h = scratch_push(p, n_elem);
    if (n_elem > 0)
        p->s->k->act_forward(p->s, h, pre, c->act, n_elem);
    return h;
}

static void mlp_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct mlp_conf *c = m->conf;
    void *pre = tape_push(p, pass_rows(p) * c->hidden);
    module_forward(m->children[C_FC], p, x, pre);
    size_t mark = stack_mark(&p->s->scratch);
    module_forward(m->children[C_PROJ], p, activated(c, p, pre), y);
    stack_release(&p->s->scratch, mark);
    if (module_drops(p, c->dropout))
        module_dropout(m->children[C_PROJ], p, c->dropout, y, y, c->C);
    struct mlp_frame *f = frame_push(p, sizeof *f);
    f->pre = pre;
}

static void mlp_backward(const struct module *m, struct pass *p, const void *x, void *dy, void *dx)
{
    const struct mlp_conf *c = m->conf;
    int64_t rows = pass_rows(p);
    struct mlp_frame f = *(struct mlp_frame *)frame_pop(p, sizeof f);
    size_t mark = stack_mark(&p->s->scratch);
    void *dh = scratch_push(p, rows * c->hidden);
    if (module_drops(p, c->dropout)) {
        void *dropped = scratch_push(p, rows * c->C);
        module_dropout(m->children[C_PROJ], p, c->dropout, dropped, dy, c->C);
        dy = dropped;
    }
    module_backward_from(m->children[C_PROJ], p, activated(c, p, f.pre), dy, dh);
    if (rows > 0)
        p->s->k->act_backward(p->s, dh, f.pre, c->act, rows * c->hidden);
    module_backward_from(m->children[C_FC], p, x, dh, dx);
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops mlp_ops = {
    .cls = "MLP", .forward = mlp_forward, .backward = mlp_backward};

struct module *mlp_new(struct builder *b, const char *name, const struct branch *br, int64_t hidden,
                       enum act_kind act)
{
    struct mlp_conf c = {.C = br->C, .hidden = hidden, .act = act, .dropout = br->dropout};
    struct module *m = module_new(b, name, &mlp_ops, &c, sizeof c, N_CHILDREN);
    struct linear_rules in = {.weight = {.kind = INIT_NORMAL, .b = br->std}};
    struct linear_rules out = {.weight = {.kind = INIT_NORMAL, .b = br->proj_std}};
    m->children[C_FC] =
        linear_new(b, module_path(b, name, "c_fc"), br->C, hidden, br->bias, true, ACT_NONE, &in);
    m->children[C_PROJ] = linear_new(b, module_path(b, name, "c_proj"), hidden, br->C, br->bias,
                                     true, ACT_NONE, &out);
    m->n_in = m->n_out = br->C;
    return m;
}
