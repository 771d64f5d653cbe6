/* RMSNorm (Zhang and Sennrich 2019), alone or fused with the addition that closes a residual
 * branch. */
#include "layer/layers.h"

struct rmsnorm_conf {
    int64_t C;
    float eps;
};

struct rmsnorm_frame {
    const float *rstd;
};

/* residual and sum are NULL where x is normalised as it is. */
static void rmsnorm_residual(const struct module *m, struct pass *p, const void *x,
                             const void *residual, void *sum, void *y)
{
    const struct rmsnorm_conf *c = m->conf;
    int64_t rows = pass_rows(p);
    float *rstd = tape_push_f32(p, rows);
    if (rows > 0)
        p->s->k->rmsnorm_forward(p->s, y, sum, rstd, x, residual, module_weight(m, p, 0), rows,
                                 c->C, c->eps);
    struct rmsnorm_frame *f = frame_push(p, sizeof *f);
    f->rstd = rstd;
}

static void rmsnorm_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    rmsnorm_residual(m, p, x, NULL, NULL, y);
}

static void rmsnorm_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                             void *dx)
{
    const struct rmsnorm_conf *c = m->conf;
    int64_t rows = pass_rows(p);
    struct rmsnorm_frame *f = frame_pop(p, sizeof *f);
    if (rows > 0)
        p->s->k->rmsnorm_backward(p->s, dx, module_grad(m, p, 0), dy, x, module_weight(m, p, 0),
                                  f->rstd, rows, c->C);
}

static const struct module_ops rmsnorm_ops = {
    .cls = "RMSNorm",
    .forward = rmsnorm_forward,
    .backward = rmsnorm_backward,
    .forward_residual = rmsnorm_residual,
};

struct module *rmsnorm_new(struct builder *b, const char *name, int64_t C, float eps)
{
    struct rmsnorm_conf c = {.C = C, .eps = eps};
    struct module *m = module_new(b, name, &rmsnorm_ops, &c, sizeof c, 0);
    struct tensor_row r = {.name = module_path(b, name, "weight"),
                           .shape = shape_make(1, C, 0),
                           .init = {.kind = INIT_CONST, .a = 1.0f},
                           .layout = "plain"};
    tensor_add(b->table, &r);
    m->n_rows = 1;
    m->n_in = m->n_out = C;
    return m;
}
