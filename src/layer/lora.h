/* Private to layer/: adapters beside the layers that linear.c and linears.c make. */
#pragma once
#include "layer/layers.h"

/* Whether the builder's lora has the linear layer of that full name among its targets.  Local. */
bool lora_wants(const struct builder *b, const char *name);

/* NAME.lora with the tensors NAME.lora_A.weight (rank, n_in) and NAME.lora_B.weight (n_out, rank).
 * Its forward adds to columns first … first + n_out - 1 of y, whose rows lie width apart, as dy's
 * do; its backward adds to dx and leaves dy as it is.  Local. */
struct module *lora_new(struct builder *b, const char *name, int64_t n_in, int64_t n_out,
                        int64_t first, int64_t width);
