/* The optimizers.  A new one is one file and one line here. */
#include "optim/optim_impl.h"

const struct optim_ops *const optim_list[] = {&adamw_ops, &adam_ops, &sgd_ops, NULL};

static const char *const type_words[] = {"AdamW", "Adam", "SGD", NULL};
static const char *const decay_words[] = {"matrices", "all", NULL};

const struct opt optim_opts[] = {
    ENUM(optim_conf, type, "AdamW", type_words, "update rule"),
    F64(optim_conf, lr, "1e-3", 0, 1e3, "peak learning rate"),
    F64(optim_conf, weight_decay, "0", 0, 1e3, "weight decay (torch's AdamW default is 0.01)"),
    ENUM(optim_conf, decay_on, "matrices", decay_words,
         "tensors that decay: those of two or more dimensions, or all as torch does"),
    {.type = OPT_END},
};
