/* llama2.c's model files: seven numbers, then fp32 tensors grouped by kind (legacy export, and
 * version 1 with a magic number).  After its export.py.  Names given here are Meta's, q's and k's
 * rows interleaved; names.c turns them.  The quantised version 2 is refused. */
#include "ckpt/bin.h"

#include "base/file.h"
#include <string.h>

#define LLAMA2C_MAGIC 0x616b3432

enum { V1_HEADER_BYTES = 256, LEGACY_HEADER_BYTES = 28, N_FIELDS = 7 };
enum { DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCAB, SEQ };

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static uint32_t first_word(const unsigned char head[8])
{
    return (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
           (uint32_t)head[3] << 24;
}

/* The legacy form has no mark: any .bin that is no other one; its size must then fit. */
static bool llama2c_fits(const char *path, bool is_dir, const unsigned char head[8])
{
    if (is_dir)
        return false;
    uint32_t word = first_word(head);
    return word == LLAMA2C_MAGIC || (ends_with(path, ".bin") && word > 0 && word <= 131072);
}

static int check_fields(const struct bin *b, const int32_t *h)
{
    TRY(bin_check(b, "dim", h[DIM], 131072));
    TRY(bin_check(b, "hidden_dim", h[HIDDEN], 1048576));
    TRY(bin_check(b, "n_layers", h[LAYERS], 1024));
    TRY(bin_check(b, "n_heads", h[HEADS], h[DIM]));
    TRY(bin_check(b, "n_kv_heads", h[KV_HEADS], h[HEADS]));
    TRY(bin_check(b, "vocab_size", h[VOCAB], 16777216));
    TRY(bin_check(b, "seq_len", h[SEQ], 1048576));
    if (h[DIM] % h[HEADS] != 0 || h[HEADS] % h[KV_HEADS] != 0 || h[DIM] / h[HEADS] % 2 != 0)
        FAIL(ERR_DATA, "%s: its header says dim %d, %d heads, %d of keys: they do not divide",
             b->s->path, h[DIM], h[HEADS], h[KV_HEADS]);
    return ERR_OK;
}

static void add_matrices(struct bin *b, const int32_t *h)
{
    int64_t L = h[LAYERS], C = h[DIM], kv = C / h[HEADS] * h[KV_HEADS];
    bin_add_layers(b, "layers", "attention.wq.weight", L, C, C);
    bin_add_layers(b, "layers", "attention.wk.weight", L, kv, C);
    bin_add_layers(b, "layers", "attention.wv.weight", L, kv, C);
    bin_add_layers(b, "layers", "attention.wo.weight", L, C, C);
}

static void add_mlps(struct bin *b, const int32_t *h)
{
    int64_t L = h[LAYERS], C = h[DIM], H = h[HIDDEN];
    bin_add_layers(b, "layers", "feed_forward.w1.weight", L, H, C);
    bin_add_layers(b, "layers", "feed_forward.w2.weight", L, C, H);
    bin_add_layers(b, "layers", "feed_forward.w3.weight", L, H, C);
}

static void add_legacy(struct bin *b, const int32_t *h, bool shared)
{
    int64_t L = h[LAYERS], C = h[DIM], half = C / h[HEADS] / 2;
    bin_add(b, "tok_embeddings.weight", h[VOCAB], C);
    bin_add_layers(b, "layers", "attention_norm.weight", L, C, 0);
    add_matrices(b, h);
    bin_add_layers(b, "layers", "ffn_norm.weight", L, C, 0);
    add_mlps(b, h);
    bin_add(b, "norm.weight", C, 0);
    bin_add(b, "freqs_cos", h[SEQ], half);
    bin_add(b, "freqs_sin", h[SEQ], half);
    if (!shared)
        bin_add(b, "output.weight", h[VOCAB], C);
}

static void add_v1(struct bin *b, const int32_t *h, bool shared)
{
    int64_t L = h[LAYERS], C = h[DIM];
    bin_add_layers(b, "layers", "attention_norm.weight", L, C, 0);
    bin_add_layers(b, "layers", "ffn_norm.weight", L, C, 0);
    bin_add(b, "norm.weight", C, 0);
    bin_add(b, "tok_embeddings.weight", h[VOCAB], C);
    add_matrices(b, h);
    add_mlps(b, h);
    if (!shared)
        bin_add(b, "output.weight", h[VOCAB], C);
}

static int read_version(const struct bin *b, bool *shared)
{
    unsigned char x[5]; /* version behind the magic number; the flag is behind the fields */
    TRY(file_pread_fd(b->files->fd[0], b->s->path, x, 4, 4));
    if (x[0] != 1 || x[1] || x[2] || x[3])
        FAIL(ERR_DATA, "%s: version %d of llama2.c's format; legacy and version 1 (fp32) are read",
             b->s->path, x[0]);
    TRY(file_pread_fd(b->files->fd[0], b->s->path, x, 1, 8 + 4 * N_FIELDS));
    if (x[0] > 1)
        FAIL(ERR_DATA, "%s: its flag of a shared classifier is %d", b->s->path, x[0]);
    *shared = x[0] == 1;
    return ERR_OK;
}

static int llama2c_open(struct source *s)
{
    struct bin b;
    int32_t h[N_FIELDS], magic;
    bool shared = false;
    TRY(bin_open(&b, s, 0, 1, &magic));
    bool v1 = (uint32_t)magic == LLAMA2C_MAGIC;
    source_files_close(s);
    TRY(bin_open(&b, s, v1 ? 8 : 0, N_FIELDS, h));
    if (v1) {
        TRY(read_version(&b, &shared));
    } else {
        shared = h[VOCAB] > 0;
        if (h[VOCAB] < 0 && h[VOCAB] > -INT32_MAX)
            h[VOCAB] = -h[VOCAB];
    }
    TRY(check_fields(&b, h));
    bin_begin(&b, 9 * h[LAYERS] + 6, DTYPE_F32, v1 ? V1_HEADER_BYTES : LEGACY_HEADER_BYTES);
    if (v1)
        add_v1(&b, h, shared);
    else
        add_legacy(&b, h, shared);
    return bin_end(&b, arena_printf(s->arena,
                                    "{\"model_type\": \"llama\", \"hidden_size\": %d, "
                                    "\"intermediate_size\": %d, \"num_hidden_layers\": %d, "
                                    "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                                    "\"vocab_size\": %d, \"max_position_embeddings\": %d, "
                                    "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
                                    "\"tie_word_embeddings\": %s}",
                                    h[DIM], h[HIDDEN], h[LAYERS], h[HEADS], h[KV_HEADS], h[VOCAB],
                                    h[SEQ], shared ? "true" : "false"));
}

const struct source_ops llama2c_source = {
    .name = "llama2.c",
    .fits = llama2c_fits,
    .open = llama2c_open,
    .read = source_files_read,
    .close = source_files_close,
};
