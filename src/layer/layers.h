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

/* NAME.weight is (n_in, n_out) if in_out, else (n_out, n_in).  Without an activation its backward
 * leaves dy as it is. */
struct linear_rules {
    struct init_rule weight, bias;
};
struct module *linear_new(struct builder *b, const char *name, int64_t n_in, int64_t n_out,
                          bool bias, bool in_out, enum act_kind act,
                          const struct linear_rules *init);

/* Backward adds to dx, where a residual stream's gradient already is. */
struct module *layernorm_new(struct builder *b, const char *name, int64_t C, bool bias, float eps);
/* module_forward of a LayerNorm that closes a residual branch, in one pass over memory: sum =
 * x + residual, y = norm(sum).  sum is the caller's, on the tape.  Local. */
void layernorm_forward_residual(const struct module *m, struct pass *p, const void *x,
                                const void *residual, void *sum, void *y);

/* x is NULL: reads the batch's ids.  Rows WTE.weight (V, C) and, if T > 0, WPE.weight (T, C); wpe
 * is NULL if T is 0.  dx is NULL. */
struct module *embedding_new(struct builder *b, const char *wte, const char *wpe, int64_t V,
                             int64_t T, int64_t C, float std, float dropout);

/* What attention and MLP have in common: both close with c_proj and dropout, and their backward
 * leaves dy as it is, since it is the residual stream's gradient. */
struct branch {
    int64_t C;
    bool bias;
    float dropout;       /* of the branch's output */
    float std, proj_std; /* first values: N(0, std), c_proj N(0, proj_std), biases 0 */
};
/* Causal self-attention with fused c_attn (C, 3C) and c_proj, GPT-2's way.  H divides C. */
struct module *attention_new(struct builder *b, const char *name, const struct branch *br,
                             int64_t H, float attn_dropout);
/* c_fc (C, hidden), activation, c_proj. */
struct module *mlp_new(struct builder *b, const char *name, const struct branch *br, int64_t hidden,
                       enum act_kind act);

/* A loss head: output matrix (V, C) and cross-entropy, in chunks of tokens, so that B T V logits
 * are never whole.  tied_row: the row that it shares (NAME.weight becomes its alias), or -1 for its
 * own NAME.weight, N(0, std).  Adds the gradient of the matrix in forward. */
struct module *lm_head_new(struct builder *b, const char *name, int tied_row, int64_t C, int64_t V,
                           float std);

/* A loss head over outputs (B, N), without tensors: cross-entropy over N classes (counts right
 * answers too) or squared error.  y may be x.  kind is not SAMPLE_TOKENS. */
struct module *loss_new(struct builder *b, const char *name, enum sample_kind kind, int64_t N);
