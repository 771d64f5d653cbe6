/* Stochastic gradient descent with optional momentum, as torch.optim.SGD defines it. */
#include "optim/optim_impl.h"

struct sgd_conf {
    double momentum, dampening;
    bool nesterov;
};

static const struct opt sgd_opts[] = {
    F64(sgd_conf, momentum, "0", 0, 0.9999999, "decay of the momentum buffer; 0: none is kept"),
    F64(sgd_conf, dampening, "0", 0, 1, "share of the gradient kept out of the buffer"),
    BOOL(sgd_conf, nesterov, "false", "Nesterov momentum"),
    {.type = OPT_END},
};

static const char *const buffer_names[] = {"momentum_buffer", NULL};

static int n_states(const void *conf)
{
    return ((const struct sgd_conf *)conf)->momentum > 0;
}

/* torch refuses the same: Nesterov's formula needs momentum and no dampening. */
static const char *check(const void *conf)
{
    const struct sgd_conf *c = conf;
    return c->nesterov && (c->momentum <= 0 || c->dampening > 0) ? "nesterov" : NULL;
}

static void update(const void *conf, struct stream *s, float *p, const float *g,
                   float *const *state, void *copy, int64_t n_elem, const struct optim_step *st)
{
    const struct sgd_conf *c = conf;
    struct sgd h = {
        .lr = (float)st->lr,
        .momentum = (float)c->momentum,
        .dampening = (float)c->dampening,
        .weight_decay = (float)st->weight_decay,
        .grad_scale = st->grad_scale,
        .nesterov = c->nesterov,
        .first = st->t == 1,
    };
    s->k->sgd(s, p, c->momentum > 0 ? state[0] : NULL, g, copy, n_elem, &h);
}

const struct optim_ops sgd_ops = {
    .name = "SGD",
    .opts = sgd_opts,
    .conf_bytes = sizeof(struct sgd_conf),
    .state_names = buffer_names,
    .n_states = n_states,
    .check = check,
    .update = update,
};
