/* The trainer against PyTorch: gpt2_tiny_debug's gradients and ten AdamW losses, the same on every
 * number of ranks and accumulated micro-batches whose product is at most 4, and on ragged shares.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 3
 * RUN: -n 4 */
#include "train_run.h"

#include "base/file.h"
#include "safetensors.h"
#include <unistd.h>

enum { T = 32, N_STEPS = 10 };

static const char job_text[] =
    "[job]\nmax_steps = 10\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 4\nn_embd = 32\nblock_size = 32\n"
    "vocab_size = 256\nactivation = gelu_tanh\n"
    "[data]\ntype = text\npath = %s\nsplit = 1\nshuffle = false\nsplit_batches = true\n"
    "batch_size = %d\n"
    "[strategy]\ngradient_accumulation_steps = %d\nsync_each_batch = %s\n"
    "[optimizer]\ntype = AdamW\nlr = 1e-3\nbetas = 0.9, 0.95\neps = 1e-8\nweight_decay = 0.1\n";

static bool transposed(const struct tensor_row *row)
{
    return row->layout && strcmp(row->layout, "in_out") == 0;
}

/* A tensor of the oracle in our orientation. */
static float *oracle_tensor(const struct safetensors *f, const char *what,
                            const struct tensor_row *row)
{
    char name[128];
    int64_t n = shape_elems(&row->shape);
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    snprintf(name, sizeof name, "%s.%s", what, row->name);
    safetensors_get(f, name, x, n);
    if (!transposed(row)) {
        free(y);
        return x;
    }
    int64_t n_in = row->shape.dim[0], n_out = row->shape.dim[1];
    for (int64_t i = 0; i < n_in; i++)
        for (int64_t o = 0; o < n_out; o++)
            y[i * n_out + o] = x[o * n_in + i];
    free(x);
    return y;
}

static void load_weights(struct train_run *t, const struct safetensors *f)
{
    const struct tensor_table *table = &t->run.model->table;
    for (int r = 0; r < table->n_rows; r++) {
        float *w = oracle_tensor(f, "weight", &table->rows[r]);
        memcpy(t->engine->shard->weight[r], w,
               (size_t)shape_elems(&table->rows[r].shape) * sizeof *w);
        free(w);
    }
}

/* This rank's own parts of the summed gradient, relative to each tensor's largest element. */
static void check_gradients(struct train_run *t, const struct safetensors *f)
{
    const struct tensor_table *table = &t->run.model->table;
    const struct shard *s = t->engine->shard;
    for (int r = 0; r < table->n_rows; r++) {
        float *want = oracle_tensor(f, "grad", &table->rows[r]);
        const float *got = s->grad + s->plan->place[r].begin;
        int64_t begin, end, n = shape_elems(&table->rows[r].shape);
        double largest = 0;
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)want[i]));
        plan_own_part(s->plan, t->run.model, r, s->comm->rank, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            check_that(fabs((double)got[i] - (double)want[i]) <= 1e-5 * largest, __FILE__, __LINE__,
                       "%s[%lld]: %.9g, PyTorch has %.9g (largest %.3g)", table->rows[r].name,
                       (long long)i, (double)got[i], (double)want[i], largest);
        free(want);
    }
}

static void run_combination(struct comm *c, const struct safetensors *f, const char *data,
                            int accumulation, bool sync)
{
    char ini[2048];
    struct train_run t;
    float losses[N_STEPS + 1];
    safetensors_get(f, "adamw_losses", losses, N_STEPS + 1);
    snprintf(ini, sizeof ini, job_text, data, (4 + accumulation - 1) / accumulation, accumulation,
             sync ? "true" : "false");
    train_open(&t, c, ini, NULL);
    load_weights(&t, f);
    struct window w;
    engine_draw(t.engine, &w);
    CHECK(w.n == 4 && w.n_valid == 4 * T && w.n_micro == (accumulation == 3 ? 2 : accumulation));
    for (int64_t i = 0; i < w.n_micro; i++) {
        engine_forward(t.engine, &w, i);
        engine_backward(t.engine, &w, i);
    }
    check_gradients(&t, f);
    struct step_report s;
    train_must(engine_step(t.engine, &w, &s));
    CHECK_NEAR(s.loss, losses[0], 1e-5 * losses[0]);
    CHECK_NEAR(s.grad_norm, 1.601047573, 1e-5 * 1.6);
    for (int i = 1; i < N_STEPS; i++) {
        s = train_step(&t);
        CHECK_NEAR(s.loss, losses[i], 1e-5 * losses[i]);
    }
    CHECK(t.engine->epoch == N_STEPS && t.engine->index == 0);
    train_close(&t);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    struct arena *a = arena_create();
    struct safetensors f;
    safetensors_open("tests/data/gpt2_tiny_debug.safetensors", a, &f);
    char folder[256], data[300], *book;
    size_t n;
    train_folder(c, folder, sizeof folder);
    snprintf(data, sizeof data, "%s/book.txt", folder);
    train_must(file_read("jobs/data/pride_and_prejudice.txt", 1 << 30, ERR_DATA, &book, &n));
    if (c->rank == 0)
        train_must(file_write(data, book, 4 * T + 1));
    c->ops->barrier(c);
    for (int accumulation = 1; accumulation <= 4 && accumulation * c->size <= 4; accumulation++)
        for (int sync = 0; sync < 2; sync++) {
            char name[128];
            snprintf(name, sizeof name,
                     "PyTorch's gradients and ten losses: %d ranks x %d micro-batches%s", c->size,
                     accumulation, sync ? ", summed at each" : "");
            TEST(name)
            {
                run_combination(c, &f, data, accumulation, sync);
            }
        }
    c->ops->barrier(c);
    if (c->rank == 0)
        file_remove_tree(folder);
    free(book);
    free(f.bytes);
    arena_destroy(&a);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
