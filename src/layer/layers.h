/* Constructors of the layer classes.  Each adds its rows to the table and returns a module in the
 * builder's arena.  name is the full path; tensors are "NAME.weight" and "NAME.bias".
 * All are Local and cannot fail: the model family has checked the sizes. */
#pragma once
#include "layer/module.h"

struct builder {
    struct arena *arena;
    struct tensor_table *table;
};

struct module *module_new(struct builder *b, const char *name, const struct module_ops *ops,
                          const void *conf, size_t conf_bytes, int n_children);
const char *module_path(struct builder *b, const char *parent, const char *child); /* "a.b" */

struct module *linear_new(struct builder *b, const char *name, int64_t n_in, int64_t n_out,
                          bool bias, bool in_out, enum act_kind act, const struct init_rule *weight,
                          const struct init_rule *bias_init);
struct module *layernorm_new(struct builder *b, const char *name, int64_t C, bool bias, float eps);
/* x is NULL: reads the batch's ids.  Rows wte (V, C) and, if T > 0, wpe (T, C). */
struct module *embedding_new(struct builder *b, const char *wte, const char *wpe, int64_t V,
                             int64_t T, int64_t C, float std, float dropout);
/* Self-attention with fused c_attn (C, 3C) and c_proj, GPT-2's way. */
struct module *attention_new(struct builder *b, const char *name, int64_t C, int64_t H, bool bias,
                             float attn_dropout, float resid_dropout, float std, float proj_std);
/* c_fc, activation, c_proj. */
struct module *mlp_new(struct builder *b, const char *name, int64_t C, int64_t hidden, bool bias,
                       enum act_kind act, float dropout, float std, float proj_std);
/* Tied or own output matrix with cross-entropy, in chunks of tokens: B T V logits are never whole.
 * In training its forward also makes the gradients (loss_scale is known before it runs). */
struct module *lm_head_new(struct builder *b, const char *name, int tied_row, int64_t C, int64_t V,
                           float std);
