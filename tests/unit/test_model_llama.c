/* Llama against PyTorch's numbers in float64 (tests/data/gen_debug_states.py made them), and what
 * the family promises about names, sizes, rotary layouts, short samples and errors.
 * RUN: -n 1 */
#include "check.h"
#include "unit/model_check.h"
#include "unit/oracle.h"

enum { B = 4, T = 32, C = 32, V = 256, ROWS = B * T, H = 4, N_KV_HEAD = 2, D = C / H };

static const struct sample_shape text = {.kind = SAMPLE_TOKENS, .vocab = V};
static const int64_t samples[B] = {100, 7, 3, 12345678901};

struct oracle {
    struct arena *arena;
    struct safetensors file;
    int32_t ids[ROWS], targets[ROWS];
    float logits[ROWS * V];
    float loss;
    struct model *m;
    struct run r;
    struct batch batch;
};

static struct oracle o;

#define TINY                                                                                       \
    "num_hidden_layers=2", "num_attention_heads=4", "num_key_value_heads=2", "hidden_size=32",     \
        "intermediate_size=88", "max_position_embeddings=32"
#define TIED "tie_word_embeddings=true"
#define META "rope_interleaved=true"

#define BUILD(m, a, ...)                                                                           \
    do {                                                                                           \
        const char *key_;                                                                          \
        if (RUN_BUILD("llama", &text, a, &key_, m, __VA_ARGS__) != ERR_OK)                         \
            FATAL("%s", err_text());                                                               \
    } while (0)

static void oracle_weights(struct run *r)
{
    for (int i = 0; i < r->table->n_rows; i++) {
        float *w = oracle_tensor(&o.file, "weight", &r->table->rows[i]);
        memcpy(r->weight[i], w, (size_t)run_elems(r, i) * sizeof *w);
        free(w);
    }
}

static void oracle_open(void)
{
    o.arena = arena_create();
    safetensors_open("tests/data/llama_tiny_debug.safetensors", o.arena, &o.file);
    safetensors_get(&o.file, "x", o.ids, ROWS);
    safetensors_get(&o.file, "y", o.targets, ROWS);
    safetensors_get(&o.file, "logits", o.logits, ROWS * V);
    safetensors_get(&o.file, "loss", &o.loss, 1);
    BUILD(&o.m, o.arena, TINY, TIED, META);
    run_init(&o.r, &o.m->table, o.m->root);
    oracle_weights(&o.r);
    o.r.p.loss_scale = 1.0f / ROWS;
    o.batch = (struct batch){
        .B = B, .T = T, .ids = o.ids, .targets = o.targets, .sample = samples, .n_valid = ROWS};
}

static void check_logits(struct run *r)
{
    static float logits[ROWS * V];
    r->p.logits = logits;
    run_pass(r, false, &o.batch, NULL, NULL, NULL, NULL);
    r->p.logits = NULL;
    double worst = run_difference(logits, o.logits, ROWS * V);
    check_that(worst <= 1e-5, __FILE__, __LINE__, "logits: off by %.3g", worst);
}

static void against_oracle(void)
{
    TEST ("logits are PyTorch's") {
        check_logits(&o.r);
        CHECK(o.r.loss == 0);
    }
    TEST ("loss and every gradient are PyTorch's") {
        run_zero_grads(&o.r);
        check_train(&o.r, &o.batch);
        CHECK_NEAR(o.r.loss / ROWS, o.loss, 1e-6);
        for (int i = 0; i < o.m->table.n_rows; i++) {
            float *want = oracle_tensor(&o.file, "grad", &o.m->table.rows[i]);
            double worst = run_difference(o.r.grad[i], want, run_elems(&o.r, i));
            check_that(worst <= 1e-5, __FILE__, __LINE__, "%s: off by %.3g",
                       o.m->table.rows[i].name, worst);
            free(want);
        }
        CHECK(o.m->table.n_rows == 1 + 2 * 9 + 1);
    }
    TEST ("evaluation: the same loss, an empty tape, less memory") {
        size_t training_tape = o.r.dry_tape;
        o.r.loss = 0;
        run_pass(&o.r, false, &o.batch, NULL, NULL, NULL, NULL);
        CHECK_NEAR(o.r.loss / ROWS, o.loss, 1e-6);
        CHECK(o.r.tape.top == 0 && o.r.frames.top == 0 && o.r.s.scratch.top == 0);
        CHECK(o.r.tape.peak == o.r.dry_tape && o.r.dry_tape < training_tape / 2);
    }
    TEST ("short samples: last positions' logits are those of the whole sample")
        check_short_samples(&o.r, &o.batch, o.logits, V);
    TEST ("an empty batch runs and adds nothing") {
        struct batch empty = {.T = T};
        run_zero_grads(&o.r);
        check_train(&o.r, &empty);
        run_pass(&o.r, false, &empty, NULL, NULL, NULL, NULL);
        CHECK(o.r.loss == 0);
        for (int i = 0; i < o.m->table.n_rows; i++)
            for (int64_t j = 0; j < run_elems(&o.r, i); j++)
                CHECK(o.r.grad[i][j] == 0);
    }
    TEST ("gradients do not depend on how the batch is cut")
        check_cut_batch(&o.r, &o.batch);
}

/* Rows of q and k from Meta's order, in which a pair is two neighbours, to Hugging Face's, in which
 * it is row i of a head's first and of its second half. */
static void to_halves(float *halves, const float *pairs, int64_t n_head, int64_t n_in)
{
    for (int64_t row = 0; row < n_head * D; row++) {
        int64_t i = row % D, from = row - i + (i < D / 2 ? 2 * i : 2 * (i - D / 2) + 1);
        memcpy(halves + row * n_in, pairs + from * n_in, (size_t)n_in * sizeof *halves);
    }
}

static int64_t turned_heads(const char *name)
{
    return strstr(name, "q_proj") ? H : strstr(name, "k_proj") ? N_KV_HEAD : 0;
}

static void halves(void)
{
    static float want[C * C];
    struct arena *a = arena_create();
    struct model *m;
    struct run r;
    BUILD(&m, a, TINY, TIED);
    run_init(&r, &m->table, m->root);
    oracle_weights(&r);
    r.p.loss_scale = 1.0f / ROWS;
    TEST ("rotate-half is the default and the other function of the same rows") {
        static float logits[ROWS * V];
        r.p.logits = logits;
        run_pass(&r, false, &o.batch, NULL, NULL, NULL, NULL);
        r.p.logits = NULL;
        CHECK(run_difference(logits, o.logits, ROWS * V) > 1e-4);
    }
    TEST ("rotate-half with q's and k's rows in its order: PyTorch's logits and gradients") {
        for (int i = 0; i < r.table->n_rows; i++)
            if (turned_heads(r.table->rows[i].name))
                to_halves(r.weight[i], o.r.weight[i], turned_heads(r.table->rows[i].name), C);
        check_logits(&r);
        run_zero_grads(&r);
        check_train(&r, &o.batch);
        for (int i = 0; i < r.table->n_rows; i++) {
            int64_t n_head = turned_heads(r.table->rows[i].name);
            float *grad = oracle_tensor(&o.file, "grad", &r.table->rows[i]);
            if (n_head)
                to_halves(want, grad, n_head, C);
            double worst = run_difference(r.grad[i], n_head ? want : grad, run_elems(&r, i));
            check_that(worst <= 1e-5, __FILE__, __LINE__, "%s: off by %.3g", r.table->rows[i].name,
                       worst);
            free(grad);
        }
    }
    run_clear(&r);
    arena_destroy(&a);
}

static void untied(void)
{
    struct arena *a = arena_create();
    struct model *m;
    struct run r;
    BUILD(&m, a, TINY, META);
    run_init(&r, &m->table, m->root);
    for (int i = 0; i < o.m->table.n_rows; i++)
        memcpy(run_weight(&r, o.m->table.rows[i].name), o.r.weight[i],
               (size_t)run_elems(&o.r, i) * sizeof(float));
    memcpy(run_weight(&r, "lm_head.weight"), o.r.weight[0], V * C * sizeof(float));
    r.p.loss_scale = 1.0f / ROWS;
    TEST ("untied: the two gradients add up to the tied one") {
        check_train(&r, &o.batch);
        float *want = oracle_tensor(&o.file, "grad", &o.m->table.rows[0]);
        float *sum = run_grad(&r, "model.embed_tokens.weight");
        const float *head = run_grad(&r, "lm_head.weight");
        CHECK(sum != head);
        for (int i = 0; i < V * C; i++)
            sum[i] += head[i];
        CHECK(run_difference(sum, want, V * C) <= 1e-5);
        CHECK(tensor_find(&o.m->table, "lm_head.weight") == 0); /* tied: an alias */
        free(want);
    }
    run_clear(&r);
    arena_destroy(&a);
}

static void with_dropout(void)
{
    struct arena *a = arena_create();
    struct model *m;
    struct run r;
    BUILD(&m, a, TINY, TIED, META, "attention_dropout=0.2");
    run_init(&r, &m->table, m->root);
    oracle_weights(&r);
    r.p.loss_scale = 1.0f / ROWS;
    TEST ("attention_dropout acts in training alone, and however the batch is cut") {
        check_logits(&r);
        check_cut_batch(&r, &o.batch);
        CHECK(fabs(r.loss / ROWS - (double)o.loss) > 1e-5);
    }
    run_clear(&r);
    arena_destroy(&a);
}

/* Sizes at which q, k, v and gate, up are one product each, as in every model of some size. */
static void whole_blocks(void)
{
    struct arena *a = arena_create();
    struct model *m;
    struct run r;
    TEST ("as one product: untrained loss, empty tape, cut batches") {
        BUILD(&m, a, "n_layer=2", "n_head=4", "n_embd=64", "n_kv_head=1", "block_size=32",
              "n_inner=160", "vocab_size=300");
        run_init(&r, &m->table, m->root);
        r.p.loss_scale = 1.0f / ROWS;
        check_cut_batch(&r, &o.batch);
        CHECK_NEAR(r.loss / ROWS, log(300), 0.1); /* untrained: every id is as likely */
        run_clear(&r);
    }
    arena_destroy(&a);
}

/* The module with the weight: three projections are one. */
static void first_nan(void)
{
    float *w = run_weight(&o.r, "model.layers.1.self_attn.k_proj.weight"), kept = *w;
    TEST ("check finds the module that made a NaN") {
        *w = NAN;
        o.r.p.check = true;
        run_pass(&o.r, true, &o.batch, NULL, NULL, NULL, NULL);
        CHECK_STR(o.r.p.bad, "model.layers.1.self_attn.qkv_proj");
        o.r.p.check = false;
        o.r.p.bad = NULL;
        *w = kept;
    }
}

static const struct tensor_row *row_of(const struct model *m, const char *name)
{
    int row = tensor_find(&m->table, name);
    if (row < 0)
        FATAL("no tensor \"%s\"", name);
    return &m->table.rows[row];
}

static void check_shape(const struct model *m, const char *name, int64_t n_out, int64_t n_in)
{
    const struct tensor_row *r = row_of(m, name);
    struct shape want = shape_make(n_in ? 2 : 1, n_out, n_in);
    check_that(shape_equal(&r->shape, &want), __FILE__, __LINE__, "shape of %s", name);
    CHECK(r->flags == (n_in ? TENSOR_DECAY : 0));
    CHECK(n_in ? r->init.kind == INIT_NORMAL && r->init.b == 0.02f
               : r->init.kind == INIT_CONST && r->init.a == 1.0f);
}

static void names_and_sizes(void)
{
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    TEST ("TinyLlama 1.1B has its names, shapes, first values and number of parameters") {
        struct sample_shape shape = {.kind = SAMPLE_TOKENS, .vocab = 32000};
        CHECK(RUN_BUILD("llama", &shape, a, &key, &m, "num_hidden_layers=22", "hidden_size=2048",
                        "num_attention_heads=32", "num_key_value_heads=4", "intermediate_size=5632",
                        "max_position_embeddings=2048") == ERR_OK);
        CHECK(tensor_table_elems(&m->table) == 1100048384);
        CHECK(m->shape.T == 2048 && model_block_size(m->family, m->conf) == 2048);
        CHECK(m->table.n_rows == 1 + 22 * 9 + 2);
        check_shape(m, "model.embed_tokens.weight", 32000, 2048);
        check_shape(m, "model.layers.21.input_layernorm.weight", 2048, 0);
        check_shape(m, "model.layers.21.self_attn.q_proj.weight", 2048, 2048);
        check_shape(m, "model.layers.21.self_attn.k_proj.weight", 256, 2048);
        check_shape(m, "model.layers.0.self_attn.v_proj.weight", 256, 2048);
        check_shape(m, "model.layers.0.self_attn.o_proj.weight", 2048, 2048);
        check_shape(m, "model.layers.0.post_attention_layernorm.weight", 2048, 0);
        check_shape(m, "model.layers.0.mlp.gate_proj.weight", 5632, 2048);
        check_shape(m, "model.layers.0.mlp.up_proj.weight", 5632, 2048);
        check_shape(m, "model.layers.0.mlp.down_proj.weight", 2048, 5632);
        check_shape(m, "model.norm.weight", 2048, 0);
        check_shape(m, "lm_head.weight", 32000, 2048);
        CHECK_STR(row_of(m, "model.layers.0.self_attn.k_proj.weight")->layout, "out_in");
    }
    TEST ("Llama 2 7B's widths follow from hidden_size alone; so do a small model's") {
        struct sample_shape shape = {.kind = SAMPLE_TOKENS, .vocab = 32000};
        CHECK(RUN_BUILD("llama", &shape, a, &key, &m, "n_layer=32", "n_head=32", "n_embd=4096") ==
              ERR_OK);
        CHECK(tensor_table_elems(&m->table) == 6738415616);
        BUILD(&m, a, "n_embd=64", "n_head=4", "vocab_size=300");
        CHECK(m->shape.vocab == 300); /* of the logits, not of the data */
        check_shape(m, "model.layers.0.mlp.up_proj.weight", 176, 64);
    }
    TEST ("heads as wide as one says") {
        struct run r;
        BUILD(&m, a, TINY, "head_dim=6");
        check_shape(m, "model.layers.1.self_attn.q_proj.weight", 24, 32);
        check_shape(m, "model.layers.1.self_attn.v_proj.weight", 12, 32);
        check_shape(m, "model.layers.1.self_attn.o_proj.weight", 32, 24);
        run_init(&r, &m->table, m->root);
        check_train(&r, &o.batch);
        CHECK_NEAR(r.loss / ROWS, log(V), 0.1);
        run_clear(&r);
    }
    TEST ("class names that people know") {
        const char *const *pair = model_family_find("Llama")->aliases;
        bool found = false;
        for (; *pair; pair += 2)
            found |= strcmp(pair[0], "LlamaDecoderLayer") == 0 && strcmp(pair[1], "Block") == 0;
        CHECK(found);
        CHECK_STR(m->root->ops->cls, "Llama");
        CHECK_STR(m->root->children[1]->ops->cls, "Block");
        CHECK_STR(m->root->children[1]->children[0]->ops->cls, "RMSNorm");
    }
    arena_destroy(&a);
}

static void errors(void)
{
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    TEST ("errors name the key and what would do") {
        CHECK(RUN_BUILD("llama", &text, a, &key, &m, "n_head=5") == ERR_USAGE);
        CHECK_STR(key, "num_attention_heads");
        CHECK_HAS(err_text(), "hidden_size = 768");
        CHECK_HAS(err_text(), "4 and 6");
        CHECK(RUN_BUILD("llama", &text, a, &key, &m, "n_kv_head=5") == ERR_USAGE);
        CHECK_STR(key, "num_key_value_heads");
        CHECK_HAS(err_text(), "num_attention_heads = 12");
        CHECK_HAS(err_text(), "4 and 6");
        CHECK(RUN_BUILD("llama", &text, a, &key, &m, "n_kv_head=24") == ERR_USAGE);
        CHECK_STR(key, "num_key_value_heads");
        CHECK(RUN_BUILD("llama", &text, a, &key, &m, "n_embd=36") == ERR_USAGE);
        CHECK_STR(key, "num_attention_heads");
        CHECK_HAS(err_text(), "even");
        CHECK(RUN_BUILD("llama", &text, a, &key, &m, "head_dim=7") == ERR_USAGE);
        CHECK_STR(key, "head_dim");
        CHECK_HAS(err_text(), "7 wide");
        CHECK(RUN_BUILD("llama", &text, a, &key, &m, "vocab_size=255") == ERR_USAGE);
        CHECK_STR(key, "vocab_size");
        CHECK_HAS(err_text(), "256");
        struct sample_shape rows = {.kind = SAMPLE_CLASS, .n_in = 4, .vocab = 3};
        CHECK(RUN_BUILD("llama", &rows, a, &key, &m, TIED) == ERR_USAGE);
        CHECK_STR(key, "type");
        CHECK_HAS(err_text(), "llama reads text");
    }
    arena_destroy(&a);
}

int main(void)
{
    oracle_open();
    against_oracle();
    halves();
    first_nan();
    untied();
    with_dropout();
    whole_blocks();
    names_and_sizes();
    errors();
    TEST ("in bf16: loss and gradients as near as its eight bits allow")
        check_bf16(&o.r, &o.batch);
    run_clear(&o.r);
    free(o.file.bytes);
    arena_destroy(&o.arena);
    return check_done();
}
