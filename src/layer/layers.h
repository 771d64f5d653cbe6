/* Constructors of the layer classes.  Each adds its rows to the table and returns a module in the
 * builder's arena.  name is the full path; tensors are "NAME.weight" and "NAME.bias".
 * All are Local and cannot fail: the model family has checked the sizes. */
#pragma once
#include "layer/module.h"

/* Adapters that linear layers get beside them: those whose full name, or the last part of it, is
 * matched by a target, a shell pattern. */
struct lora {
    int64_t rank;
    double alpha, dropout;
    int n_targets;
    const char *const *target;
};

/* Whether the linear layer of that full name is one of a target's.  Local. */
bool lora_matches(const char *target, const char *name);

struct builder {
    struct arena *arena;
    struct tensor_table *table;
    const struct lora *lora; /* NULL: none */
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

/* Linear layers over one x, without bias and activation, as one module: outputs lie side by side in
 * y (rows, sum of n_out), tensors are PARENT.NAME.weight (n_out, n_in).  Where these lie one behind
 * the other in memory too, it is one product. */
enum { LINEARS_MAX = 3 };
struct linears {
    int n;
    const char *name[LINEARS_MAX];
    int64_t n_out[LINEARS_MAX];
    float std; /* first values: N(0, std) */
};
struct module *linears_new(struct builder *b, const char *name, const char *parent, int64_t n_in,
                           const struct linears *l);

/* Backward adds to dx, where a residual stream's gradient already is. */
struct module *layernorm_new(struct builder *b, const char *name, int64_t C, bool bias, float eps);
/* The same without mean and bias. */
struct module *rmsnorm_new(struct builder *b, const char *name, int64_t C, float eps);

/* x is NULL: reads the batch's ids.  Rows WTE.weight (V, C) and, if T > 0, WPE.weight (T, C); wpe
 * is NULL if T is 0.  dx is NULL. */
struct module *embedding_new(struct builder *b, const char *wte, const char *wpe, int64_t V,
                             int64_t T, int64_t C, float std, float dropout);

/* What attention and MLP have in common: both close with a projection and dropout, and their
 * backward leaves dy as it is, since it is the residual stream's gradient. */
struct branch {
    int64_t C;
    bool bias;
    float dropout;       /* of the branch's output */
    float std, proj_std; /* first values: N(0, std), the projection N(0, proj_std), biases 0 */
    bool remakes;        /* the activation of an MLP is made again in backward, not kept */
};
/* Remaking costs 1 / C of the products around it: from this width on it is worth its memory. */
enum { REMAKE_WIDTH = 512 };

/* Causal self-attention with fused c_attn (C, 3C) and c_proj, GPT-2's way.  H divides C. */
struct module *attention_new(struct builder *b, const char *name, const struct branch *br,
                             int64_t H, float attn_dropout);
/* Causal self-attention with rotary positions (Su et al. 2021) and, where n_kv_head < H, heads that
 * share keys and values (Ainslie et al. 2023), Llama's way: q_proj, k_proj, v_proj, o_proj.  Needs
 * p->rope. */
struct rope_attention {
    int64_t H, n_kv_head, D; /* n_kv_head divides H; D is even, H D need not be C */
    bool interleaved;        /* pairs (2i, 2i + 1), Meta's layout; false: (i, i + D / 2) */
    float attn_dropout;
};
struct module *rope_attention_new(struct builder *b, const char *name, const struct branch *br,
                                  const struct rope_attention *r);
/* Pushes the table of a pass on the tape and lets p->rope point to it: angle i of position t is
 * t / theta^(2i / D).  Local. */
void rope_push(struct pass *p, int64_t D, double theta);

/* c_fc (C, hidden), activation, c_proj. */
struct module *mlp_new(struct builder *b, const char *name, const struct branch *br, int64_t hidden,
                       enum act_kind act);

/* down_proj(silu(gate_proj(x)) * up_proj(x)) (Shazeer 2020), Llama's way. */
struct module *swiglu_new(struct builder *b, const char *name, const struct branch *br,
                          int64_t hidden);

/* A loss head: output matrix (V, C) and cross-entropy, in chunks of tokens, so that B T V logits
 * are never whole.  tied_row: the row that it shares (NAME.weight becomes its alias), or -1 for its
 * own NAME.weight, N(0, std).  Adds the gradient of the matrix in forward. */
struct module *lm_head_new(struct builder *b, const char *name, int tied_row, int64_t C, int64_t V,
                           float std);

/* A loss head over outputs (B, N), without tensors: cross-entropy over N classes (counts right
 * answers too) or squared error.  y may be x.  kind is not SAMPLE_TOKENS. */
struct module *loss_new(struct builder *b, const char *name, enum sample_kind kind, int64_t N);
