/* The model families, a line each. */
#include "model/model.h"

const struct model_family *const model_list[] = {&gpt2_family, &llama_family, &mlp_family, NULL};
