/* The trainer against PyTorch: gradients and ten AdamW losses of gpt2_tiny_debug and
 * llama_tiny_debug, the same on every number of ranks and accumulated micro-batches whose product
 * is at most 4, and on ragged shares.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 3
 * RUN: -n 4 */
#include "train_run.h"

#include "oracle.h"
#include <unistd.h>

enum { T = 32, N_STEPS = 10 };

/* The norms are those of the generator's log, in float64. */
static const struct family {
    const char *name, *file, *model;
    double grad_norm;
} families[] = {
    {"gpt2", "tests/data/gpt2_tiny_debug.safetensors",
     "type = gpt2\nn_layer = 2\nn_head = 4\nn_embd = 32\nblock_size = 32\n"
     "activation = gelu_tanh\n",
     1.601047573},
    {"llama", "tests/data/llama_tiny_debug.safetensors",
     "type = llama\nnum_hidden_layers = 2\nnum_attention_heads = 4\nnum_key_value_heads = 2\n"
     "hidden_size = 32\nintermediate_size = 88\nmax_position_embeddings = 32\n"
     "rope_interleaved = true\ntie_word_embeddings = true\n",
     1.873687269},
};

static const char job_text[] =
    "[job]\nmax_steps = 10\n"
    "[model]\nvocab_size = 256\n%s"
    "[data]\ntype = text\npath = %s\nsplit = 1\nshuffle = false\nsplit_batches = true\n"
    "batch_size = %d\n"
    "[strategy]\ngradient_accumulation_steps = %d\nsync_each_batch = %s\n"
    "[optimizer]\ntype = AdamW\nlr = 1e-3\nbetas = 0.9, 0.95\neps = 1e-8\nweight_decay = 0.1\n";

static void load_weights(struct train_run *t, const struct safetensors *f)
{
    const struct tensor_table *table = &t->run.model->table;
    for (int r = 0; r < table->n_rows; r++) {
        float *w = oracle_tensor(f, "weight", &table->rows[r]);
        struct shard_part p = shard_held_part(t->engine->shard, SHARD_MASTER, r);
        memcpy(p.values, w + p.begin, (size_t)(p.end - p.begin) * sizeof *w);
        free(w);
    }
    shard_refresh(t->engine->shard);
}

/* This rank's own parts of the summed gradient, relative to each tensor's largest element. */
static void check_gradients(struct train_run *t, const struct safetensors *f)
{
    const struct tensor_table *table = &t->run.model->table;
    const struct shard *s = t->engine->shard;
    for (int r = 0; r < table->n_rows; r++) {
        float *want = oracle_tensor(f, "grad", &table->rows[r]);
        struct shard_part got = shard_own_part(s, SHARD_GRAD, r);
        int64_t n = shape_elems(&table->rows[r].shape);
        double largest = 0;
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)want[i]));
        for (int64_t i = got.begin; i < got.end; i++) {
            double g = (double)got.values[i - got.begin];
            check_that(fabs(g - (double)want[i]) <= 1e-5 * largest, __FILE__, __LINE__,
                       "%s[%lld]: %.9g, PyTorch has %.9g (largest %.3g)", table->rows[r].name,
                       (long long)i, g, (double)want[i], largest);
        }
        free(want);
    }
}

struct setting {
    const struct family *family;
    const struct safetensors *file;
    const char *data;
};

static void run_combination(struct comm *c, const struct setting *on, int accumulation, bool sync)
{
    const struct safetensors *f = on->file;
    char ini[2048];
    struct train_run t;
    float losses[N_STEPS + 1];
    safetensors_get(f, "adamw_losses", losses, N_STEPS + 1);
    snprintf(ini, sizeof ini, job_text, on->family->model, on->data,
             (4 + accumulation - 1) / accumulation, accumulation, sync ? "true" : "false");
    train_open(&t, c, ini, NULL);
    load_weights(&t, f);
    struct window w;
    train_window(&t, &w);
    CHECK(w.n == 4 && w.n_valid == 4 * T && w.n_micro == (accumulation == 3 ? 2 : accumulation));
    check_gradients(&t, f);
    struct step_report s;
    train_must(engine_step(t.engine, &w, &s));
    CHECK_NEAR(s.loss, losses[0], 1e-5 * losses[0]);
    CHECK_NEAR(s.grad_norm, on->family->grad_norm, 1e-5 * on->family->grad_norm);
    for (int i = 1; i < N_STEPS; i++) {
        s = train_step(&t);
        CHECK_NEAR(s.loss, losses[i], 1e-5 * losses[i]);
    }
    CHECK(t.engine->epoch == N_STEPS && t.engine->index == 0);
    train_close(&t);
}

static void run_family(struct comm *c, const struct family *family, const char *data)
{
    struct arena *a = arena_create();
    struct safetensors f;
    struct setting on = {.family = family, .file = &f, .data = data};
    safetensors_open(family->file, a, &f);
    for (int accumulation = 1; accumulation <= 4 && accumulation * c->size <= 4; accumulation++)
        for (int sync = 0; sync < 2; sync++) {
            char name[128];
            snprintf(name, sizeof name,
                     "%s: PyTorch's gradients and ten losses: %d ranks x %d micro-batches%s",
                     family->name, c->size, accumulation, sync ? ", summed at each" : "");
            TEST (name)
                run_combination(c, &on, accumulation, sync);
        }
    free(f.bytes);
    arena_destroy(&a);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    char folder[256], data[300];
    train_folder(c, folder, sizeof folder);
    snprintf(data, sizeof data, "%s/book.txt", folder);
    train_book(c, folder, 4 * T + 1);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        run_family(c, &families[i], data);
    return train_end(&c, folder);
}
