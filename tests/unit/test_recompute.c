/* Activation checkpointing: the same bits with less tape, whatever is run again, under every way to
 * share the model; and the tape is the plan's.
 * RUN: -n 1
 * RUN: -n 2 */
#include "train_run.h"

#include "base/hash.h"

enum { N_STEPS = 3 };

struct result {
    double loss[N_STEPS], norm[N_STEPS];
    uint64_t weights;
    size_t tape;
    int n_recomputed;
};

static const char text_job[] =
    "[job]\nmax_steps = 100\n"
    "[model]\ntype = %s\nn_layer = 4\nn_head = 2\nn_embd = 32\nblock_size = 16\n%s"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 3\n"
    "[strategy]\nsync_each_batch = true\ngradient_accumulation_steps = 2\n"
    "gradient_clipping = 0.5\nmixed_precision = %s\n%s%s"
    "[optimizer]\nlr = 1e-2\n";

static const char rows_job[] = "[job]\nmax_steps = 100\n"
                               "[model]\ntype = %s\nhidden = 32, 24, 16\n%s"
                               "[data]\ntype = csv\npath = jobs/data/iris.csv\nbatch_size = 6\n"
                               "[strategy]\ngradient_accumulation_steps = 2\n"
                               "mixed_precision = %s\n%s%s"
                               "[optimizer]\nlr = 1e-2\n";

static uint64_t weights_of(const struct train_run *t)
{
    uint64_t h = 0;
    for (int r = 0; r < t->engine->shard->plan->n_rows; r++) {
        struct shard_part p = shard_held_part(t->engine->shard, SHARD_MASTER, r);
        h = hash64(p.values, (size_t)(p.end - p.begin) * sizeof(float), h);
    }
    return h;
}

static struct result run(struct comm *c, const char *model, const char *precision, const char *keys,
                         const char *plugin)
{
    char ini[2048];
    struct train_run t;
    struct result r = {0};
    snprintf(ini, sizeof ini, strcmp(model, "mlp") == 0 ? rows_job : text_job, model,
             strcmp(model, "llama") == 0 ? "" : "dropout = 0.1\n", precision, keys, plugin);
    train_open(&t, c, ini, NULL);
    t.engine->tape.peak = 0;
    for (int i = 0; i < N_STEPS; i++) {
        struct step_report s = train_step(&t);
        r.loss[i] = s.loss;
        r.norm[i] = s.grad_norm;
    }
    CHECK(t.engine->tape.top == 0 && t.engine->stream.scratch.top == 0);
    struct plan_memory m;
    const struct plan_case one = {
        .B = t.run.batching.max_local, .T = t.run.model->shape.T, .compute = t.run.shard.compute};
    plan_measure(t.run.model, t.dev, &one, &m);
    CHECK(t.engine->tape.peak == m.tape_bytes);
    CHECK(t.engine->stream.scratch.peak <= m.scratch_bytes);
    r.tape = t.engine->tape.peak;
    r.weights = weights_of(&t);
    r.n_recomputed = t.run.n_recomputed;
    train_close(&t);
    return r;
}

static const char *const plugins[] = {
    "",
    "distributed_type = FSDP\n",
    "distributed_type = FSDP\n[plugin]\ntype = fsdp\nfsdp_sharding_strategy = SHARD_GRAD_OP\n"
    "fsdp_transformer_layer_cls_to_wrap = Attention, MLP, Linear\n",
    "distributed_type = FSDP\n[plugin]\ntype = fsdp\n"
    "fsdp_transformer_layer_cls_to_wrap = Block, LMHead\n",
    "distributed_type = DEEPSPEED\n",
};
enum { N_PLUGINS = sizeof plugins / sizeof *plugins };

#define ON "activation_checkpointing = true\n"
static const struct {
    const char *keys;
    int n; /* modules of a model of four blocks */
} ways[] = {
    {ON, 4},
    {ON "activation_checkpointing_every = 3\n", 2},
    {ON "activation_checkpointing_classes = Attention, MLP\n", 8},
    {ON
     "activation_checkpointing_classes = Block, Attention, Linear\nactivation_checkpointing_every "
     "= 2\n",
     -1}, /* inside one another */
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void language(struct comm *c, const char *model, const char *precision, int n_plugins)
{
    struct result plain[N_PLUGINS];
    for (int k = 0; k < n_plugins; k++)
        plain[k] = run(c, model, precision, "", plugins[k]);
    for (int w = 0; w < N_WAYS; w++)
        for (int k = 0; k < n_plugins; k++) {
            struct result r = run(c, model, precision, ways[w].keys, plugins[k]);
            for (int i = 0; i < N_STEPS; i++)
                CHECK(r.loss[i] == plain[k].loss[i] && r.norm[i] == plain[k].norm[i]);
            CHECK(r.weights == plain[k].weights);
            CHECK(r.tape < plain[k].tape);
            CHECK(ways[w].n < 0 || r.n_recomputed == ways[w].n);
            CHECK(plain[k].n_recomputed == 0);
        }
}

/* All blocks: what stays of each is its output, and one whole block while it is computed; without
 * it all four are there, and the head's gradient behind them. */
static void formula(struct comm *c)
{
    struct result plain = run(c, "gpt2", "no", "", ""), all = run(c, "gpt2", "no", ON, "");
    /* rows: r, three normed or attended, qkv's three, four times the width twice, statistics */
    size_t rows = 3 * 16, C = 32, H = 2, elem = sizeof(float);
    size_t block = rows * (C + C + C + 3 * C + C + 4 * C + 4 * C + H + 4) * elem;
    double want = (double)(3 * block + rows * (C + 2) * elem);
    CHECK_NEAR((double)(plain.tape - all.tape), want, 3 * 16 * STACK_ALIGN);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    TEST ("gpt2, fp32: the same bits under every way to share")
        language(c, "gpt2", "no", N_PLUGINS);
    TEST ("llama, bf16: the same bits")
        language(c, "llama", "bf16", 2);
    TEST ("gpt2, fp16: the same bits")
        language(c, "gpt2", "fp16", 1);
    TEST ("mlp: the same bits, its linear layers' inputs kept") {
        struct result a = run(c, "mlp", "no", "", ""), b = run(c, "mlp", "no", ON, "");
        for (int i = 0; i < N_STEPS; i++)
            CHECK(a.loss[i] == b.loss[i] && a.norm[i] == b.norm[i]);
        CHECK(a.weights == b.weights && b.tape < a.tape && b.n_recomputed == 4);
    }
    TEST ("four blocks: the tape falls by three blocks' activations and the head's")
        formula(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
