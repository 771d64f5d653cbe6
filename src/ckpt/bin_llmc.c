/* llm.c's GPT-2 files: 256 int32, then tensors grouped by kind, fp32 (version 3) or bf16 (version
 * 5).  After its train_gpt2.c.  Names given here are nanoGPT's, matrices [out, in]; names.c turns
 * them.  Rows that pad the vocabulary are left out. */
#include "ckpt/bin.h"

enum { LLMC_MAGIC = 20240326, LLMC_HEADER_BYTES = 1024, N_FIELDS = 8 };
enum { MAGIC, VERSION, MAX_T, VOCAB, LAYERS, HEADS, CHANNELS, PADDED_VOCAB };

static bool llmc_fits(const char *path, bool is_dir, const unsigned char head[8])
{
    (void)path;
    return !is_dir && ((uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
                       (uint32_t)head[3] << 24) == LLMC_MAGIC;
}

static int check_fields(const struct bin *b, const int32_t *h)
{
    if (h[VERSION] != 3 && h[VERSION] != 5)
        FAIL(ERR_DATA, "%s: version %d of llm.c's format; 3 (fp32) and 5 (bf16) are read",
             b->s->path, h[VERSION]);
    TRY(bin_check(b, "max_seq_len", h[MAX_T], 1048576));
    TRY(bin_check(b, "num_layers", h[LAYERS], 1024));
    TRY(bin_check(b, "channels", h[CHANNELS], 131072));
    TRY(bin_check(b, "num_heads", h[HEADS], h[CHANNELS]));
    TRY(bin_check(b, "padded_vocab_size", h[PADDED_VOCAB], 16777216));
    TRY(bin_check(b, "vocab_size", h[VOCAB], h[PADDED_VOCAB]));
    if (h[CHANNELS] % h[HEADS] != 0)
        FAIL(ERR_DATA, "%s: its header says %d heads of %d channels, which they do not divide",
             b->s->path, h[HEADS], h[CHANNELS]);
    return ERR_OK;
}

static int llmc_open(struct source *s)
{
    struct bin b;
    int32_t h[N_FIELDS];
    TRY(bin_open(&b, s, 0, N_FIELDS, h));
    TRY(check_fields(&b, h));
    int64_t L = h[LAYERS], C = h[CHANNELS];
    bin_begin(&b, 12 * h[LAYERS] + 4, h[VERSION] == 3 ? DTYPE_F32 : DTYPE_BF16, LLMC_HEADER_BYTES);
    bin_add(&b, "wte.weight", h[VOCAB], C);
    b.at += (h[PADDED_VOCAB] - h[VOCAB]) * C * (int64_t)dtype_bytes(b.dtype);
    bin_add(&b, "wpe.weight", h[MAX_T], C);
    bin_add_layers(&b, "h", "ln_1.weight", L, C, 0);
    bin_add_layers(&b, "h", "ln_1.bias", L, C, 0);
    bin_add_layers(&b, "h", "attn.c_attn.weight", L, 3 * C, C);
    bin_add_layers(&b, "h", "attn.c_attn.bias", L, 3 * C, 0);
    bin_add_layers(&b, "h", "attn.c_proj.weight", L, C, C);
    bin_add_layers(&b, "h", "attn.c_proj.bias", L, C, 0);
    bin_add_layers(&b, "h", "ln_2.weight", L, C, 0);
    bin_add_layers(&b, "h", "ln_2.bias", L, C, 0);
    bin_add_layers(&b, "h", "mlp.c_fc.weight", L, 4 * C, C);
    bin_add_layers(&b, "h", "mlp.c_fc.bias", L, 4 * C, 0);
    bin_add_layers(&b, "h", "mlp.c_proj.weight", L, C, 4 * C);
    bin_add_layers(&b, "h", "mlp.c_proj.bias", L, C, 0);
    bin_add(&b, "ln_f.weight", C, 0);
    bin_add(&b, "ln_f.bias", C, 0);
    return bin_end(&b, arena_printf(s->arena,
                                    "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_head\": %d, "
                                    "\"n_embd\": %d, \"n_positions\": %d, \"vocab_size\": %d, "
                                    "\"activation_function\": \"gelu_new\", "
                                    "\"layer_norm_epsilon\": 1e-05, \"tie_word_embeddings\": true}",
                                    h[LAYERS], h[HEADS], h[CHANNELS], h[MAX_T], h[VOCAB]));
}

const struct source_ops llmc_source = {
    .name = "llm.c",
    .fits = llmc_fits,
    .open = llmc_open,
    .read = source_files_read,
    .close = source_files_close,
};
