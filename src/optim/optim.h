/* Optimizers: updates of a flat range.  They know nothing of sharding, tensors or ranks.
 * One file an optimizer, one line in optim_list.c. */
#pragma once
#include "device/device.h"
#include "job/opt.h"

/* Keys that every optimizer has, [optimizer] or [optimizer.NAME]. */
struct optim_conf {
    int type; /* index into optim_list */
    double lr;
    double weight_decay;
    int decay_on; /* enum decay_on */
};
enum decay_on { DECAY_ON_MATRICES, DECAY_ON_ALL };
extern const struct opt optim_opts[];

struct optim_step {
    int64_t t; /* optimizer step, from 1 */
    double lr, weight_decay;
    float grad_scale;    /* multiplies the gradient: clipping */
    const double *betas; /* in place of Adam's own; NULL: those */
};

enum { OPTIM_MAX_STATES = 2 };

struct optim_ops {
    const char *name;
    const struct opt *opts; /* own keys */
    size_t conf_bytes;
    const char *const *state_names;          /* checkpoint groups: exp_avg, …; NULL-terminated */
    int (*n_states)(const void *conf);       /* how many of them this conf needs */
    const char *(*check)(const void *conf);  /* the key that does not fit the others, or NULL */
    double (*second_beta)(const void *conf); /* NULL: it has no betas for a schedule to set */
    /* p and state from g; copy (or NULL) gets p in the compute dtype */
    void (*update)(const void *conf, struct stream *s, float *p, const float *g,
                   float *const *state, void *copy, int64_t n_elem, const struct optim_step *st);
};

extern const struct optim_ops *const optim_list[]; /* NULL-terminated */
