/* Private to optim/: what optim_list.c lists. */
#pragma once
#include "optim/optim.h"

extern const struct optim_ops adamw_ops; /* adamw.c */
extern const struct optim_ops adam_ops;
extern const struct optim_ops sgd_ops; /* sgd.c */
