/* Linear: y = act(x W + b), with an adapter act(x W + b + adapter(x)). */
#include "layer/lora.h"

struct linear_conf {
    int64_t n_in, n_out;
    bool bias, in_out;
    enum act_kind act;
};

struct linear_frame {
    const void *pre; /* values before the activation, NULL without one */
};

static struct linear sizes(const struct linear_conf *c, const struct pass *p)
{
    return (struct linear){
        .M = pass_rows(p), .N = c->n_out, .K = c->n_in, .in_out = c->in_out, .act = c->act};
}

static void linear_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct linear_conf *c = m->conf;
    struct linear l = sizes(c, p);
    void *pre = p->training && c->act != ACT_NONE ? tape_push(p, l.M * l.N) : NULL;
    const void *w = module_weight(m, p, 0), *b = module_weight(m, p, 1);
    if (m->n_children > 0) {
        void *sum = pre ? pre : y;
        l.act = ACT_NONE;
        if (l.M > 0)
            p->s->k->linear_forward(p->s, &l, sum, NULL, x, w, b);
        module_forward(m->children[0], p, x, sum);
        if (l.M > 0 && c->act != ACT_NONE)
            p->s->k->act_forward(p->s, y, sum, c->act, l.M * l.N);
    } else if (l.M > 0) {
        p->s->k->linear_forward(p->s, &l, y, pre, x, w, b);
    }
    struct linear_frame *f = frame_push(p, sizeof *f);
    f->pre = pre;
}

static void linear_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                            void *dx)
{
    const struct linear_conf *c = m->conf;
    struct linear l = sizes(c, p);
    struct linear_frame f = *(struct linear_frame *)frame_pop(p, sizeof f);
    if (m->n_children > 0 && l.M > 0 && c->act != ACT_NONE)
        p->s->k->act_backward(p->s, dy, f.pre, c->act, l.M * l.N);
    if (m->n_children > 0)
        l.act = ACT_NONE;
    if (l.M > 0) {
        float *dw = pass_grad_first(p, m->first_row, &l.unset_dw);
        p->s->k->linear_backward(p->s, &l, dx, dw, module_grad(m, p, 1), dy, x,
                                 module_weight(m, p, 0), f.pre);
    }
    if (m->n_children > 0)
        module_backward_from(m->children[0], p, x, dy, dx);
}

static const struct module_ops linear_ops = {
    .cls = "Linear", .forward = linear_forward, .backward = linear_backward};

struct module *linear_new(struct builder *b, const char *name, int64_t n_in, int64_t n_out,
                          bool bias, bool in_out, enum act_kind act,
                          const struct linear_rules *init)
{
    struct linear_conf c = {
        .n_in = n_in, .n_out = n_out, .bias = bias, .in_out = in_out, .act = act};
    struct module *m = module_new(b, name, &linear_ops, &c, sizeof c, lora_wants(b, name));
    struct tensor_row w = {
        .name = module_path(b, name, "weight"),
        .shape = in_out ? shape_make(2, n_in, n_out) : shape_make(2, n_out, n_in),
        .flags = TENSOR_DECAY,
        .init = init->weight,
        .layout = in_out ? "in_out" : "out_in",
    };
    tensor_add(b->table, &w);
    if (bias) {
        struct tensor_row r = {.name = module_path(b, name, "bias"),
                               .shape = shape_make(1, n_out, 0),
                               .init = init->bias,
                               .layout = "plain"};
        tensor_add(b->table, &r);
    }
    m->n_rows = bias ? 2 : 1;
    if (m->n_children > 0)
        m->children[0] = lora_new(b, name, n_in, n_out, 0, n_out);
    m->n_in = n_in;
    m->n_out = n_out;
    return m;
}
