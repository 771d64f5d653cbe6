/* Llama (Touvron et al. 2023, arXiv:2302.13971): pre-norm blocks with RMSNorm, rotary positions,
 * shared keys and values, and SwiGLU, without biases.  Names, orientation, first values and the
 * order of q's and k's rows are Hugging Face's. */
#include "model/decoder.h"

struct llama_conf {
    int64_t hidden_size, intermediate_size, num_hidden_layers;
    int64_t num_attention_heads, num_key_value_heads, head_dim;
    int64_t max_position_embeddings, vocab_size;
    double rms_norm_eps, rope_theta, initializer_range, attention_dropout;
    bool rope_interleaved, tie_word_embeddings;
};

/* A key with the names that it has for gpt2. */
#define KEY(field, names, kind, flag, dft, lo, hi, text)                                           \
    {                                                                                              \
        .name = #field, .aliases = (names), .type = (kind), .flags = (flag),                       \
        .offset = offsetof(struct llama_conf, field), .dflt = (dft), .min = (lo), .max = (hi),     \
        .help = (text)                                                                             \
    }

static const struct opt llama_opts[] = {
    KEY(num_hidden_layers, "n_layer", OPT_I64, 0, "12", 1, 1024, "blocks"),
    KEY(num_attention_heads, "n_head", OPT_I64, 0, "12", 1, 4096, "attention heads"),
    KEY(num_key_value_heads, "n_kv_head", OPT_I64, OPT_AUTO, "auto", 1, 4096,
        "heads of keys and values; must divide num_attention_heads; auto: as many"),
    KEY(hidden_size, "n_embd", OPT_I64, 0, "768", 1, 131072, "width of the residual stream"),
    KEY(intermediate_size, "n_inner", OPT_I64, OPT_AUTO, "auto", 1, 1048576,
        "width inside the MLP; auto: 8/3 hidden_size, up to the next multiple of 256 (of 8 where "
        "hidden_size is below 256)"),
    KEY(head_dim, NULL, OPT_I64, OPT_AUTO, "auto", 2, 131072,
        "width of a head, an even number; auto: hidden_size / num_attention_heads"),
    KEY(max_position_embeddings, "block_size n_positions n_ctx", OPT_I64, 0, "1024", 1, 1048576,
        "tokens of a sample"),
    I64_AUTO(llama_conf, vocab_size, "auto", 1, 16777216,
             "token ids; auto: as many as the data has"),
    F64(llama_conf, rms_norm_eps, "1e-5", 1e-12, 1, "added to the mean square in norms"),
    F64(llama_conf, rope_theta, "10000", 1, 1e12, "base of the rotary positions' wavelengths"),
    BOOL(llama_conf, rope_interleaved, "false",
         "rotary pairs are neighbours (Meta's weights); false: a head's two halves (Hugging Face)"),
    BOOL(llama_conf, tie_word_embeddings, "false", "the output matrix is the embedding"),
    F64(llama_conf, attention_dropout, "0", 0, 0.99, "share of the attention weights dropped"),
    F64(llama_conf, initializer_range, "0.02", 0, 10, "standard deviation of the first weights"),
    {.type = OPT_END},
};
#undef KEY

static const struct module_ops llama_ops = {
    .cls = "Llama", .forward = decoder_forward, .backward = decoder_backward};

static int resolve_heads(struct llama_conf *c, const char **key)
{
    if (c->num_key_value_heads == OPT_AUTO_I64)
        c->num_key_value_heads = c->num_attention_heads;
    *key = "num_key_value_heads";
    TRY(decoder_divides("num_key_value_heads", c->num_key_value_heads, "num_attention_heads",
                        c->num_attention_heads));
    *key = "num_attention_heads";
    if (c->head_dim == OPT_AUTO_I64) {
        TRY(decoder_divides("num_attention_heads", c->num_attention_heads, "hidden_size",
                            c->hidden_size));
        c->head_dim = c->hidden_size / c->num_attention_heads;
    } else {
        *key = "head_dim";
    }
    if (c->head_dim % 2 != 0)
        FAIL(ERR_USAGE, "heads are %lld wide; rotary positions need an even width",
             (long long)c->head_dim);
    return ERR_OK;
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static int resolve(struct model *m, struct llama_conf *c, const char **key)
{
    TRY(decoder_check_data(m, &c->vocab_size, key));
    TRY(resolve_heads(c, key));
    if (c->intermediate_size == OPT_AUTO_I64)
        c->intermediate_size = round_up(8 * c->hidden_size / 3, c->hidden_size < 256 ? 8 : 256);
    m->shape.T = c->max_position_embeddings;
    return ERR_OK;
}

static struct module *block_new(struct builder *b, const struct llama_conf *c, const char *name)
{
    struct module *m = module_new(b, name, &decoder_block_ops, NULL, 0, N_BLOCK_CHILDREN);
    float std = (float)c->initializer_range, eps = (float)c->rms_norm_eps;
    struct branch br = {.C = c->hidden_size,
                        .std = std,
                        .proj_std = std,
                        .remakes = c->hidden_size >= REMAKE_WIDTH};
    struct rope_attention r = {
        .H = c->num_attention_heads,
        .n_kv_head = c->num_key_value_heads,
        .D = c->head_dim,
        .interleaved = c->rope_interleaved,
        .attn_dropout = (float)c->attention_dropout,
    };
    m->children[NORM_1] = rmsnorm_new(b, module_path(b, name, "input_layernorm"), br.C, eps);
    m->children[ATTENTION] = rope_attention_new(b, module_path(b, name, "self_attn"), &br, &r);
    m->children[NORM_2] =
        rmsnorm_new(b, module_path(b, name, "post_attention_layernorm"), br.C, eps);
    m->children[MLP] = swiglu_new(b, module_path(b, name, "mlp"), &br, c->intermediate_size);
    m->n_in = m->n_out = br.C;
    return m;
}

static int llama_build(struct model *m, void *conf, const char **key)
{
    struct llama_conf *c = conf;
    TRY(resolve(m, c, key));
    struct builder b = {.arena = m->arena, .table = &m->table, .lora = m->lora};
    struct decoder positions = {.rope_D = c->head_dim, .rope_theta = c->rope_theta};
    int n_layer = (int)c->num_hidden_layers;
    float std = (float)c->initializer_range;
    m->root = module_new(&b, "", &llama_ops, &positions, sizeof positions, n_layer + 3);
    struct module **child = m->root->children;
    int embedding = m->table.n_rows;
    child[0] =
        embedding_new(&b, "model.embed_tokens", NULL, c->vocab_size, 0, c->hidden_size, std, 0.0f);
    for (int i = 0; i < n_layer; i++)
        child[1 + i] = block_new(&b, c, arena_printf(m->arena, "model.layers.%d", i));
    child[n_layer + 1] = rmsnorm_new(&b, "model.norm", c->hidden_size, (float)c->rms_norm_eps);
    child[n_layer + 2] = lm_head_new(&b, "lm_head", c->tie_word_embeddings ? embedding : -1,
                                     c->hidden_size, c->vocab_size, std);
    return ERR_OK;
}

static int64_t llama_block_size(const void *conf)
{
    return ((const struct llama_conf *)conf)->max_position_embeddings;
}

static const char *const llama_aliases[] = {
    "LlamaDecoderLayer",
    "Block",
    "LlamaAttention",
    "Attention",
    "LlamaSdpaAttention",
    "Attention",
    "LlamaMLP",
    "MLP",
    "LlamaModel",
    "Llama",
    "LlamaForCausalLM",
    "Llama",
    "LlamaRMSNorm",
    "RMSNorm",
    "TransformerBlock",
    "Block",
    "FeedForward",
    "MLP",
    NULL,
};

/* peft's choice. */
static const char *const llama_lora[] = {"q_proj", "v_proj", NULL};

static const char *const llama_hf_keys[] = {
    "vocab_size",
    "vocab_size",
    "max_position_embeddings",
    "max_position_embeddings",
    "hidden_size",
    "hidden_size",
    "intermediate_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_hidden_layers",
    "num_attention_heads",
    "num_attention_heads",
    "num_key_value_heads",
    "num_key_value_heads",
    "head_dim",
    "head_dim",
    "rms_norm_eps",
    "rms_norm_eps",
    "rope_theta",
    "rope_theta",
    "attention_dropout",
    "attention_dropout",
    "initializer_range",
    "initializer_range",
    "tie_word_embeddings",
    "tie_word_embeddings",
    NULL,
};
static const char *const llama_hf_fixed[] = {
    "hidden_act", "\"silu\"", "attention_bias", "false", "mlp_bias", "false", "pretraining_tp",
    "1",          NULL,
};
static const char *const llama_hf_missing[] = {"rms_norm_eps", "1e-6", NULL};

static const struct hf_family llama_hf = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .prefix = "",
    .keys = llama_hf_keys,
    .fixed = llama_hf_fixed,
    .missing = llama_hf_missing,
};

const struct model_family llama_family = {
    .name = "llama",
    .aliases = llama_aliases,
    .block_cls = "Block",
    .opts = llama_opts,
    .conf_bytes = sizeof(struct llama_conf),
    .build = llama_build,
    .lora_targets = llama_lora,
    .block_size = llama_block_size,
    .hf = &llama_hf,
};
