/* LayerNorm (Ba et al. 2016), alone or fused with the addition that closes a residual branch. */
#include "layer/layers.h"

struct layernorm_conf {
    int64_t C;
    float eps;
};

struct layernorm_frame {
    const float *mean, *rstd;
};

/* residual and sum are NULL where x is normalised as it is. */
static void layernorm_residual(const struct module *m, struct pass *p, const void *x,
                               const void *residual, void *sum, void *y)
{
    const struct layernorm_conf *c = m->conf;
    int64_t rows = pass_rows(p);
    float *mean = tape_push_f32(p, rows), *rstd = tape_push_f32(p, rows);
    if (rows > 0)
        p->s->k->layernorm_forward(p->s, y, sum, mean, rstd, x, residual, module_weight(m, p, 0),
                                   module_weight(m, p, 1), rows, c->C, c->eps);
    struct layernorm_frame *f = frame_push(p, sizeof *f);
    *f = (struct layernorm_frame){.mean = mean, .rstd = rstd};
}

static void layernorm_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    layernorm_residual(m, p, x, NULL, NULL, y);
}

static void layernorm_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                               void *dx)
{
    const struct layernorm_conf *c = m->conf;
    int64_t rows = pass_rows(p);
    struct layernorm_frame *f = frame_pop(p, sizeof *f);
    if (rows > 0)
        p->s->k->layernorm_backward(p->s, dx, module_grad(m, p, 0), module_grad(m, p, 1), dy, x,
                                    module_weight(m, p, 0), f->mean, f->rstd, rows, c->C);
}

static const struct module_ops layernorm_ops = {
    .cls = "LayerNorm",
    .forward = layernorm_forward,
    .backward = layernorm_backward,
    .forward_residual = layernorm_residual,
};

struct module *layernorm_new(struct builder *b, const char *name, int64_t C, bool bias, float eps)
{
    struct layernorm_conf c = {.C = C, .eps = eps};
    struct module *m = module_new(b, name, &layernorm_ops, &c, sizeof c, 0);
    struct tensor_row r = {.name = module_path(b, name, "weight"),
                           .shape = shape_make(1, C, 0),
                           .init = {.kind = INIT_CONST, .a = 1.0f},
                           .layout = "plain"};
    tensor_add(b->table, &r);
    if (bias) {
        r.name = module_path(b, name, "bias");
        r.init.a = 0.0f;
        tensor_add(b->table, &r);
    }
    m->n_rows = bias ? 2 : 1;
    m->n_in = m->n_out = C;
    return m;
}
