/* MLP of a Llama block: a gate and a value of the same width, their product, narrow again (Shazeer
 * 2020, arXiv:2002.05202). */
#include "layer/layers.h"

struct swiglu_conf {
    int64_t C, hidden;
    float dropout;
    bool remakes;
};

enum { GATE_UP, DOWN, N_CHILDREN };

struct swiglu_frame {
    void *gate_up; /* (rows, 2 hidden), the gate first */
    void *h;       /* (rows, hidden): what backward needs too, or makes again in scratch */
};

static void gate(const struct swiglu_conf *c, struct pass *p, void *h, const void *gate_up)
{
    int64_t rows = pass_rows(p);
    if (rows > 0)
        p->s->k->swiglu_forward(p->s, h, gate_up, rows, c->hidden);
}

static void swiglu_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct swiglu_conf *c = m->conf;
    int64_t n_elem = pass_rows(p) * c->hidden;
    struct swiglu_frame f = {.gate_up = tape_push(p, 2 * n_elem)};
    size_t mark = stack_mark(&p->s->scratch);
    f.h = c->remakes ? scratch_push(p, n_elem) : tape_push(p, n_elem);
    module_forward(m->children[GATE_UP], p, x, f.gate_up);
    gate(c, p, f.h, f.gate_up);
    module_forward(m->children[DOWN], p, f.h, y);
    stack_release(&p->s->scratch, mark);
    if (module_drops(p, c->dropout))
        module_dropout(m->children[DOWN], p, c->dropout, y, y, c->C);
    *(struct swiglu_frame *)frame_push(p, sizeof f) = f;
}

static void swiglu_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                            void *dx)
{
    const struct swiglu_conf *c = m->conf;
    int64_t rows = pass_rows(p);
    struct swiglu_frame f = *(struct swiglu_frame *)frame_pop(p, sizeof f);
    size_t mark = stack_mark(&p->s->scratch);
    void *dh = scratch_push(p, rows * c->hidden);
    void *d_gate_up = scratch_push(p, rows * 2 * c->hidden);
    if (module_drops(p, c->dropout)) {
        void *dropped = scratch_push(p, rows * c->C);
        module_dropout(m->children[DOWN], p, c->dropout, dropped, dy, c->C);
        dy = dropped;
    }
    if (c->remakes) {
        f.h = scratch_push(p, rows * c->hidden);
        gate(c, p, f.h, f.gate_up);
    }
    module_backward_from(m->children[DOWN], p, f.h, dy, dh);
    if (rows > 0 && !m->children[GATE_UP]->still)
        p->s->k->swiglu_backward(p->s, d_gate_up, dh, f.gate_up, rows, c->hidden);
    module_backward_from(m->children[GATE_UP], p, x, d_gate_up, dx);
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops swiglu_ops = {
    .cls = "MLP", .forward = swiglu_forward, .backward = swiglu_backward};

struct module *swiglu_new(struct builder *b, const char *name, const struct branch *br,
                          int64_t hidden)
{
    REQUIRE(!br->bias);
    struct swiglu_conf c = {
        .C = br->C, .hidden = hidden, .dropout = br->dropout, .remakes = br->remakes};
    struct module *m = module_new(b, name, &swiglu_ops, &c, sizeof c, N_CHILDREN);
    struct linears in = {
        .n = 2, .name = {"gate_proj", "up_proj"}, .n_out = {hidden, hidden}, .std = br->std};
    struct linear_rules out = {.weight = {.kind = INIT_NORMAL, .b = br->proj_std}};
    m->children[GATE_UP] = linears_new(b, module_path(b, name, "gate_up_proj"), name, br->C, &in);
    m->children[DOWN] = linear_new(b, module_path(b, name, "down_proj"), hidden, br->C, false,
                                   false, ACT_NONE, &out);
    m->n_in = m->n_out = br->C;
    return m;
}
