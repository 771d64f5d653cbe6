/* GPT-2 against PyTorch's numbers in float64 (tests/data/gen_debug_states.py made them), and what
 * the family promises about names, sizes, short samples, dropout and errors.
 * RUN: -n 1 */
#include "check.h"
#include "unit/model_check.h"
#include "unit/oracle.h"

enum { B = 4, T = 32, C = 32, V = 256, ROWS = B * T };

static const struct sample_shape text = {.kind = SAMPLE_TOKENS, .vocab = V};
static const int64_t samples[B] = {100, 7, 3, 12345678901};

struct oracle {
    struct arena *arena;
    struct safetensors file;
    int32_t ids[ROWS], targets[ROWS];
    struct model *m;
    struct run r;
    struct batch batch;
};

static struct oracle o;

#define TINY "n_layer=2", "n_head=4", "n_embd=32", "block_size=32"

static void build(struct model **m, struct arena *a, const char *extra)
{
    const char *key;
    if (RUN_BUILD("gpt2", &text, a, &key, m, TINY, extra) != ERR_OK)
        FATAL("%s", err_text());
}

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
    safetensors_open("tests/data/gpt2_tiny_debug.safetensors", o.arena, &o.file);
    safetensors_get(&o.file, "x", o.ids, ROWS);
    safetensors_get(&o.file, "y", o.targets, ROWS);
    build(&o.m, o.arena, "dropout=0");
    run_init(&o.r, &o.m->table, o.m->root);
    oracle_weights(&o.r);
    o.batch = (struct batch){
        .B = B, .T = T, .ids = o.ids, .targets = o.targets, .sample = samples, .n_valid = ROWS};
}

static void against_oracle(void)
{
    static float logits[ROWS * V], want_logits[ROWS * V];
    float loss;
    safetensors_get(&o.file, "logits", want_logits, ROWS * V);
    safetensors_get(&o.file, "loss", &loss, 1);
    TEST ("logits are PyTorch's") {
        o.r.p.logits = logits;
        run_pass(&o.r, false, &o.batch, NULL, NULL, NULL, NULL);
        o.r.p.logits = NULL;
        CHECK(o.r.loss == 0);
        CHECK(run_difference(logits, want_logits, ROWS * V) <= 1e-5);
    }
    TEST ("loss and every gradient are PyTorch's") {
        run_zero_grads(&o.r);
        o.r.p.loss_scale = 1.0f / ROWS;
        check_train(&o.r, &o.batch);
        CHECK_NEAR(o.r.loss / ROWS, loss, 1e-6);
        for (int i = 0; i < o.m->table.n_rows; i++) {
            const struct tensor_row *row = &o.m->table.rows[i];
            float *want = oracle_tensor(&o.file, "grad", row);
            double worst = run_difference(o.r.grad[i], want, run_elems(&o.r, i));
            check_that(worst <= 1e-5, __FILE__, __LINE__, "%s: off by %.3g", row->name, worst);
            free(want);
        }
        CHECK(o.m->table.n_rows == 28);
    }
    TEST ("evaluation: the same loss, an empty tape, less memory") {
        size_t training_tape = o.r.dry_tape;
        o.r.loss = 0;
        run_pass(&o.r, false, &o.batch, NULL, NULL, NULL, NULL);
        CHECK_NEAR(o.r.loss / ROWS, loss, 1e-6);
        CHECK(o.r.tape.top == 0 && o.r.frames.top == 0 && o.r.s.scratch.top == 0);
        CHECK(o.r.tape.peak == o.r.dry_tape && o.r.dry_tape < training_tape / 2);
    }
    TEST ("short samples: last positions' logits are those of the whole sample") {
        check_short_samples(&o.r, &o.batch, want_logits, V);
    }
}

static void with_dropout(void)
{
    struct arena *a = arena_create();
    struct model *m;
    struct run r;
    build(&m, a, "dropout=0.2");
    run_init(&r, &m->table, m->root);
    oracle_weights(&r);
    r.p.loss_scale = 1.0f / ROWS;
    TEST ("dropout masks do not depend on how the batch is cut")
        check_cut_batch(&r, &o.batch);
    TEST ("dropout differs by step, sample and place, and rests in evaluation") {
        struct batch other = o.batch;
        static const int64_t others[B] = {101, 7, 3, 12345678901};
        other.sample = others;
        run_zero_grads(&r);
        check_train(&r, &o.batch);
        double first = r.loss;
        r.loss = 0;
        check_train(&r, &o.batch);
        CHECK(r.loss == first);
        r.loss = 0;
        check_train(&r, &other);
        CHECK(r.loss != first);
        r.loss = 0;
        r.p.key = rng_key_make(RUN_SEED, 2);
        check_train(&r, &o.batch);
        CHECK(r.loss != first);
        o.r.loss = r.loss = 0;
        run_pass(&r, false, &o.batch, NULL, NULL, NULL, NULL);
        run_pass(&o.r, false, &o.batch, NULL, NULL, NULL, NULL);
        CHECK(r.loss == o.r.loss);
    }
    run_clear(&r);
    arena_destroy(&a);
}

static void untied(void)
{
    struct arena *a = arena_create();
    struct model *m;
    struct run r;
    build(&m, a, "tie_word_embeddings=false");
    run_init(&r, &m->table, m->root);
    for (int i = 0; i < o.m->table.n_rows; i++)
        memcpy(run_weight(&r, o.m->table.rows[i].name), o.r.weight[i],
               (size_t)run_elems(&o.r, i) * sizeof(float));
    memcpy(run_weight(&r, "lm_head.weight"), run_weight(&r, "wte.weight"), V * C * sizeof(float));
    r.p.loss_scale = 1.0f / ROWS;
    TEST ("untied: the two gradients add up to the tied one") {
        check_train(&r, &o.batch);
        float *want = oracle_tensor(&o.file, "grad", &o.m->table.rows[0]);
        float *sum = run_grad(&r, "wte.weight"), *head = run_grad(&r, "lm_head.weight");
        CHECK(sum != head);
        for (int i = 0; i < V * C; i++)
            sum[i] += head[i];
        CHECK(run_difference(sum, want, V * C) <= 1e-5);
        free(want);
        CHECK(tensor_find(&o.m->table, "lm_head.weight") == 0); /* tied: an alias of wte */
    }
    run_clear(&r);
    arena_destroy(&a);
}

static void names_and_sizes(void)
{
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    TEST ("GPT-2 124M has its names, shapes, first values and number of parameters") {
        struct sample_shape shape = {.kind = SAMPLE_TOKENS, .vocab = 50257};
        CHECK(RUN_BUILD("gpt2", &shape, a, &key, &m, "n_layer=12") == ERR_OK);
        CHECK(tensor_table_elems(&m->table) == 124439808);
        CHECK(m->shape.T == 1024 && model_block_size(m->family, m->conf) == 1024);
        const struct tensor_row *row = m->table.rows;
        CHECK_STR(row[0].name, "wte.weight");
        CHECK_STR(row[1].name, "wpe.weight");
        const struct tensor_row *q = &row[tensor_find(&m->table, "h.11.attn.c_attn.weight")];
        CHECK(q->shape.dim[0] == 768 && q->shape.dim[1] == 3 * 768 && q->flags == TENSOR_DECAY);
        CHECK(q->init.kind == INIT_NORMAL && q->init.b == 0.02f);
        q = &row[tensor_find(&m->table, "h.3.mlp.c_proj.weight")];
        CHECK(q->shape.dim[0] == 3072 && q->shape.dim[1] == 768);
        CHECK_NEAR(q->init.b, 0.02 / sqrt(24), 1e-9);
        CHECK_STR(q->layout, "in_out");
        q = &row[tensor_find(&m->table, "h.0.ln_2.weight")];
        CHECK(q->flags == 0 && q->init.kind == INIT_CONST && q->init.a == 1.0f);
        CHECK_STR(row[m->table.n_rows - 1].name, "ln_f.bias");
        CHECK(m->table.n_rows == 2 + 12 * 12 + 2);
    }
    TEST ("without biases, with another MLP width and Hugging Face's key") {
        CHECK(RUN_BUILD("GPT2", &text, a, &key, &m, TINY, "bias=false", "n_inner=48",
                        "n_positions=16", "vocab_size=300") == ERR_OK);
        CHECK(m->table.n_rows == 2 + 2 * 6 + 1 && tensor_find(&m->table, "ln_f.bias") < 0);
        CHECK(tensor_table_elems(&m->table) ==
              300 * 32 + 16 * 32 + 2 * (2 * 32 + 4 * 32 * 32 + 2 * 32 * 48) + 32);
        struct run r;
        run_init(&r, &m->table, m->root);
        struct batch b = o.batch;
        b.T = 16;
        check_train(&r, &b);
        CHECK_NEAR(r.loss / (B * 16), log(300), 0.1); /* untrained: every id is as likely */
        run_clear(&r);
    }
    TEST ("errors name the key and what would do") {
        CHECK(RUN_BUILD("gpt2", &text, a, &key, &m, "n_head=5") == ERR_USAGE);
        CHECK_STR(key, "n_head");
        CHECK_HAS(err_text(), "n_embd = 768");
        CHECK_HAS(err_text(), "4 and 6");
        CHECK(RUN_BUILD("gpt2", &text, a, &key, &m, "n_head=8", "n_embd=4") == ERR_USAGE);
        CHECK_STR(key, "n_head");
        CHECK(RUN_BUILD("gpt2", &text, a, &key, &m, "vocab_size=255") == ERR_USAGE);
        CHECK_STR(key, "vocab_size");
        CHECK_HAS(err_text(), "256");
        struct sample_shape rows = {.kind = SAMPLE_CLASS, .n_in = 4, .vocab = 3};
        CHECK(RUN_BUILD("gpt2", &rows, a, &key, &m, "bias=true") == ERR_USAGE);
        CHECK_STR(key, "type");
        CHECK(!m && !model_family_find("gpt3"));
    }
    TEST ("option tables are sound") {
        for (int i = 0; model_list[i]; i++)
            if (opt_check_table(model_list[i]->opts, a) != ERR_OK)
                check_that(false, __FILE__, __LINE__, "%s: %s", model_list[i]->name, err_text());
    }
    arena_destroy(&a);
}

int main(void)
{
    oracle_open();
    against_oracle();
    TEST ("gradients do not depend on how the batch is cut")
        check_cut_batch(&o.r, &o.batch);
    with_dropout();
    untied();
    names_and_sizes();
    TEST ("in bf16: loss and gradients as near as its eight bits allow")
        check_bf16(&o.r, &o.batch);
    run_clear(&o.r);
    free(o.file.bytes);
    arena_destroy(&o.arena);
    return check_done();
}
