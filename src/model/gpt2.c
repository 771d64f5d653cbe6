/* GPT-2 (Radford et al. 2019): pre-norm blocks on a residual stream, learned positions, output
 * matrix tied to the embedding.  Names, orientation and first values are Hugging Face's. */
#include "model/decoder.h"

#include <math.h>

struct gpt2_conf {
    int64_t n_layer, n_head, n_embd, n_inner, block_size, vocab_size;
    int activation;
    bool bias, tie_word_embeddings;
    double dropout, embd_pdrop, attn_pdrop, resid_pdrop;
    double layer_norm_epsilon, initializer_range;
};

static const char *const activation_words[] = {"gelu_tanh", "gelu_new", "gelu",
                                               "relu",      "silu",     NULL};
static const enum act_kind activations[] = {ACT_GELU_TANH, ACT_GELU_TANH, ACT_GELU, ACT_RELU,
                                            ACT_SILU};

/* A key with the names that other programs have for it. */
#define KEY(field, names, kind, flag, dft, lo, hi, text)                                           \
    {                                                                                              \
        .name = #field, .aliases = (names), .type = (kind), .flags = (flag),                       \
        .offset = offsetof(struct gpt2_conf, field), .dflt = (dft), .min = (lo), .max = (hi),      \
        .help = (text)                                                                             \
    }

static const struct opt gpt2_opts[] = {
    KEY(n_layer, "num_hidden_layers", OPT_I64, 0, "12", 1, 1024, "blocks"),
    KEY(n_head, "num_attention_heads", OPT_I64, 0, "12", 1, 4096,
        "attention heads; must divide n_embd"),
    KEY(n_embd, "hidden_size", OPT_I64, 0, "768", 1, 131072, "width of the residual stream"),
    KEY(n_inner, "intermediate_size", OPT_I64, OPT_AUTO, "auto", 1, 1048576,
        "width inside the MLP; auto: 4 n_embd"),
    KEY(block_size, "n_positions n_ctx max_position_embeddings", OPT_I64, 0, "1024", 1, 1048576,
        "tokens of a sample, and positions that are learned"),
    I64_AUTO(gpt2_conf, vocab_size, "auto", 1, 16777216,
             "token ids; auto: as many as the data has"),
    {.name = "activation",
     .aliases = "activation_function",
     .type = OPT_ENUM,
     .offset = offsetof(struct gpt2_conf, activation),
     .dflt = "gelu_tanh",
     .words = activation_words,
     .help = "of the MLP; gelu_tanh and gelu_new are one"},
    BOOL(gpt2_conf, bias, "true", "biases in linear layers and norms"),
    F64(gpt2_conf, dropout, "0", 0, 0.99, "share dropped wherever GPT-2 drops"),
    F64_AUTO(gpt2_conf, embd_pdrop, "auto", 0, 0.99, "of the embeddings; auto: dropout"),
    F64_AUTO(gpt2_conf, attn_pdrop, "auto", 0, 0.99, "of the attention weights; auto: dropout"),
    F64_AUTO(gpt2_conf, resid_pdrop, "auto", 0, 0.99,
             "of attention's and the MLP's output; auto: dropout"),
    KEY(layer_norm_epsilon, "layer_norm_eps", OPT_F64, 0, "1e-5", 1e-12, 1,
        "added to the variance in norms"),
    BOOL(gpt2_conf, tie_word_embeddings, "true", "the output matrix is the embedding"),
    F64(gpt2_conf, initializer_range, "0.02", 0, 10, "standard deviation of the first weights"),
    {.type = OPT_END},
};
#undef KEY

static const struct module_ops gpt2_ops = {
    .cls = "GPT2", .forward = decoder_forward, .backward = decoder_backward};

static int resolve(struct model *m, struct gpt2_conf *c, const char **key)
{
    TRY(decoder_check_data(m, &c->vocab_size, key));
    *key = "n_head";
    TRY(decoder_divides("n_head", c->n_head, "n_embd", c->n_embd));
    if (c->n_inner == OPT_AUTO_I64)
        c->n_inner = 4 * c->n_embd;
    double *rates[] = {&c->embd_pdrop, &c->attn_pdrop, &c->resid_pdrop};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (opt_is_auto(*rates[i]))
            *rates[i] = c->dropout;
    m->shape.T = c->block_size;
    return ERR_OK;
}

static struct module *block_new(struct builder *b, const struct gpt2_conf *c, const char *name)
{
    struct module *m = module_new(b, name, &decoder_block_ops, NULL, 0, N_BLOCK_CHILDREN);
    struct branch br = {
        .C = c->n_embd,
        .bias = c->bias,
        .remakes = c->n_embd >= REMAKE_WIDTH,
        .dropout = (float)c->resid_pdrop,
        .std = (float)c->initializer_range,
        .proj_std = (float)(c->initializer_range / sqrt(2.0 * (double)c->n_layer)),
    };
    float eps = (float)c->layer_norm_epsilon;
    m->children[NORM_1] = layernorm_new(b, module_path(b, name, "ln_1"), br.C, c->bias, eps);
    m->children[ATTENTION] =
        attention_new(b, module_path(b, name, "attn"), &br, c->n_head, (float)c->attn_pdrop);
    m->children[NORM_2] = layernorm_new(b, module_path(b, name, "ln_2"), br.C, c->bias, eps);
    m->children[MLP] =
        mlp_new(b, module_path(b, name, "mlp"), &br, c->n_inner, activations[c->activation]);
    m->n_in = m->n_out = br.C;
    return m;
}

static int gpt2_build(struct model *m, void *conf, const char **key)
{
    struct gpt2_conf *c = conf;
    TRY(resolve(m, c, key));
    struct builder b = {.arena = m->arena, .table = &m->table, .lora = m->lora};
    int n_layer = (int)c->n_layer;
    float std = (float)c->initializer_range;
    struct decoder positions = {.rope_D = 0};
    m->root = module_new(&b, "", &gpt2_ops, &positions, sizeof positions, n_layer + 3);
    struct module **child = m->root->children;
    int wte = m->table.n_rows;
    child[0] = embedding_new(&b, "wte", "wpe", c->vocab_size, c->block_size, c->n_embd, std,
                             (float)c->embd_pdrop);
    for (int i = 0; i < n_layer; i++)
        child[1 + i] = block_new(&b, c, arena_printf(m->arena, "h.%d", i));
    child[n_layer + 1] =
        layernorm_new(&b, "ln_f", c->n_embd, c->bias, (float)c->layer_norm_epsilon);
    child[n_layer + 2] = lm_head_new(&b, "lm_head", c->tie_word_embeddings ? wte : -1, c->n_embd,
                                     c->vocab_size, std);
    return ERR_OK;
}

static int64_t gpt2_block_size(const void *conf)
{
    return ((const struct gpt2_conf *)conf)->block_size;
}

static const char *const gpt2_aliases[] = {
    "GPT2Block", "Block",  "GPT2Attention",       "Attention", "GPT2MLP", "MLP",
    "GPT2Model", "GPT2",   "GPT2LMHeadModel",     "GPT2",      "GPT",     "GPT2",
    "Conv1D",    "Linear", "CausalSelfAttention", "Attention", NULL,
};

/* peft's choice. */
static const char *const gpt2_lora[] = {"c_attn", NULL};

static const char *const gpt2_hf_keys[] = {
    "vocab_size",
    "vocab_size",
    "n_positions",
    "block_size",
    "n_embd",
    "n_embd",
    "n_layer",
    "n_layer",
    "n_head",
    "n_head",
    "n_inner",
    "n_inner",
    "activation_function",
    "activation",
    "embd_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "attn_pdrop",
    "resid_pdrop",
    "resid_pdrop",
    "layer_norm_epsilon",
    "layer_norm_epsilon",
    "initializer_range",
    "initializer_range",
    "tie_word_embeddings",
    "tie_word_embeddings",
    /* not transformers' own, which always has biases: kept for the way back */
    "bias",
    "bias",
    NULL,
};
static const char *const gpt2_hf_fixed[] = {
    "scale_attn_weights",
    "true",
    "scale_attn_by_inverse_layer_idx",
    "false",
    "reorder_and_upcast_attn",
    "false",
    "add_cross_attention",
    "false",
    NULL,
};
static const char *const gpt2_hf_words[] = {
    "gelu_tanh", "gelu_new", "gelu_tanh", "gelu_pytorch_tanh", "silu", "silu",
    "silu",      "swish",    NULL,
};

static const struct hf_family gpt2_hf = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .keys = gpt2_hf_keys,
    .fixed = gpt2_hf_fixed,
    .words = gpt2_hf_words,
};

const struct model_family gpt2_family = {
    .name = "gpt2",
    .aliases = gpt2_aliases,
    .block_cls = "Block",
    .opts = gpt2_opts,
    .conf_bytes = sizeof(struct gpt2_conf),
    .build = gpt2_build,
    .lora_targets = gpt2_lora,
    .block_size = gpt2_block_size,
    .hf = &gpt2_hf,
};
