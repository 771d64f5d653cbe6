/* AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) and Adam (Kingma and Ba 2015,
 * arXiv:1412.6980): two moments, bias-corrected; they differ in how weight decay enters. */
#include "optim/optim_impl.h"

struct adamw_conf {
    struct opt_f64s betas;
    double eps;
    bool bias_correction;
};

static const struct opt adamw_opts[] = {
    F64S(adamw_conf, betas, "0.9, 0.999", 0, 0.9999999, "decay of the first and second moment"),
    F64(adamw_conf, eps, "1e-8", 0, 1, "added to the root of the second moment"),
    BOOL(adamw_conf, bias_correction, "true", "divide the moments by 1 - beta^step"),
    {.type = OPT_END},
};

static const char *const moment_names[] = {"exp_avg", "exp_avg_sq", NULL};

static int two(const void *conf)
{
    (void)conf;
    return 2;
}

static const char *check(const void *conf)
{
    const struct adamw_conf *c = conf;
    return c->betas.n == 2 ? NULL : "betas";
}

static double second_beta(const void *conf)
{
    return ((const struct adamw_conf *)conf)->betas.v[1];
}

static void update(const struct adamw_conf *c, bool decoupled, struct stream *s, float *p,
                   const float *g, float *const *state, void *copy, int64_t n_elem,
                   const struct optim_step *st)
{
    double t = (double)st->t;
    double b1 = st->betas ? st->betas[0] : c->betas.v[0];
    double b2 = st->betas ? st->betas[1] : c->betas.v[1];
    struct adamw h = {
        .lr = (float)st->lr,
        .beta1 = b1,
        .beta2 = b2,
        .eps = (float)c->eps,
        .weight_decay = (float)st->weight_decay,
        .grad_scale = st->grad_scale,
        .correction1 = c->bias_correction ? (float)(1 - pow(b1, t)) : 1,
        .correction2 = c->bias_correction ? (float)(1 - pow(b2, t)) : 1,
        .decoupled = decoupled,
    };
    s->k->adamw(s, p, state[0], state[1], g, copy, n_elem, &h);
}

static void adamw_update(const void *conf, struct stream *s, float *p, const float *g,
                         float *const *state, void *copy, int64_t n_elem,
                         const struct optim_step *st)
{
    update(conf, true, s, p, g, state, copy, n_elem, st);
}

static void adam_update(const void *conf, struct stream *s, float *p, const float *g,
                        float *const *state, void *copy, int64_t n_elem,
                        const struct optim_step *st)
{
    update(conf, false, s, p, g, state, copy, n_elem, st);
}

const struct optim_ops adamw_ops = {
    .name = "AdamW",
    .opts = adamw_opts,
    .conf_bytes = sizeof(struct adamw_conf),
    .state_names = moment_names,
    .n_states = two,
    .check = check,
    .second_beta = second_beta,
    .update = adamw_update,
};

const struct optim_ops adam_ops = {
    .name = "Adam",
    .opts = adamw_opts,
    .conf_bytes = sizeof(struct adamw_conf),
    .state_names = moment_names,
    .n_states = two,
    .check = check,
    .second_beta = second_beta,
    .update = adam_update,
};
