/* Loss: the head of models whose outputs are few: cross-entropy over classes, or squared error. */
#include "layer/layers.h"

struct loss_conf {
    enum sample_kind kind;
    int64_t N;
};

static void loss_forward(const struct module *m, struct pass *p, const void *x, void *dx)
{
    const struct loss_conf *c = m->conf;
    const struct kernels *k = p->s->k;
    int64_t B = pass_rows(p);
    REQUIRE(p->training ? dx && !p->logits : !dx);
    size_t mark = stack_mark(&p->s->scratch);
    float *loss = scratch_push_f32(p, B);
    if (B > 0 && c->kind == SAMPLE_CLASS) {
        if (p->n_correct)
            k->count_correct(p->s, p->n_correct, x, p->batch->targets, B, c->N, p->output);
        k->cross_entropy(p->s, loss, dx, x, p->batch->targets, B, c->N, c->N, p->loss_scale,
                         p->output);
    } else if (B > 0) {
        k->mse(p->s, loss, dx, x, p->batch->values, B, c->N, p->loss_scale, p->output);
    }
    if (B > 0)
        k->sum_f64(p->s, p->loss_sum, loss, B);
    stack_release(&p->s->scratch, mark);
}

static void loss_backward(const struct module *m, struct pass *p, const void *x, void *dy, void *dx)
{
    (void)x;
    (void)m;
    (void)p;
    REQUIRE(dy == dx);
}

static const struct module_ops loss_ops = {
    .cls = "Loss", .loss_head = true, .forward = loss_forward, .backward = loss_backward};

struct module *loss_new(struct builder *b, const char *name, enum sample_kind kind, int64_t N)
{
    REQUIRE(kind != SAMPLE_TOKENS);
    struct loss_conf c = {.kind = kind, .N = N};
    struct module *m = module_new(b, name, &loss_ops, &c, sizeof c, 0);
    m->n_in = m->n_out = N;
    return m;
}
