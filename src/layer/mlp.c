/* MLP of a GPT-2 block: widen, activate, narrow. */
#include "layer/layers.h"

struct mlp_conf {
    int64_t C, hidden;
    enum act_kind act;
    float dropout;
    bool remakes;
};

/* What backward needs of the activation, (rows, hidden) each: a wide MLP keeps what went in and
 * makes the rest again; a narrow one, whose time is not its products', makes the slope in the pass
 * that makes the values. */
struct mlp_frame {
    void *pre; /* before it; its slope instead where h is kept in training */
    void *h;   /* behind it; in scratch where it is made again */
};

enum { C_FC, C_PROJ, N_CHILDREN };

static void activate(const struct mlp_conf *c, struct pass *p, void *h, const void *pre)
{
    int64_t n_elem = pass_rows(p) * c->hidden;
    if (n_elem > 0)
        p->s->k->act_forward(p->s, h, pre, c->act, n_elem);
}

/* dh becomes the gradient of what went into the activation. */
static void differentiate(const struct mlp_conf *c, struct pass *p, void *dh, const void *pre)
{
    int64_t n_elem = pass_rows(p) * c->hidden;
    if (c->remakes)
        p->s->k->act_backward(p->s, dh, pre, c->act, n_elem);
    else
        p->s->k->multiply(p->s, dh, pre, n_elem);
}

static void mlp_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct mlp_conf *c = m->conf;
    int64_t n_elem = pass_rows(p) * c->hidden;
    struct mlp_frame f = {.pre = tape_push(p, n_elem)};
    size_t mark = stack_mark(&p->s->scratch);
    f.h = c->remakes ? scratch_push(p, n_elem) : tape_push(p, n_elem);
    module_forward(m->children[C_FC], p, x, f.pre);
    if (c->remakes || !p->training)
        activate(c, p, f.h, f.pre);
    else if (n_elem > 0)
        p->s->k->act_both(p->s, f.h, f.pre, f.pre, c->act, n_elem);
    module_forward(m->children[C_PROJ], p, f.h, y);
    stack_release(&p->s->scratch, mark);
    if (module_drops(p, c->dropout))
        module_dropout(m->children[C_PROJ], p, c->dropout, y, y, c->C);
    *(struct mlp_frame *)frame_push(p, sizeof f) = f;
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
    if (c->remakes) {
        f.h = scratch_push(p, rows * c->hidden);
        activate(c, p, f.h, f.pre);
    }
    module_backward_from(m->children[C_PROJ], p, f.h, dy, dh);
    if (rows > 0 && !m->children[C_FC]->still)
        differentiate(c, p, dh, f.pre);
    module_backward_from(m->children[C_FC], p, x, dh, dx);
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops mlp_ops = {
    .cls = "MLP", .forward = mlp_forward, .backward = mlp_backward};

struct module *mlp_new(struct builder *b, const char *name, const struct branch *br, int64_t hidden,
                       enum act_kind act)
{
    struct mlp_conf c = {
        .C = br->C, .hidden = hidden, .act = act, .dropout = br->dropout, .remakes = br->remakes};
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
