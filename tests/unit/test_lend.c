/* Activations in the memory of gradients: the bits of a run whose gradients lie apart, whatever is
 * trained, frozen, adapted or run again; less memory; and only where gradients are free meanwhile.
 * RUN: -n 1
 * RUN: -n 2 */
#include "parallel/lend.h"
#include "strategy_run.h"

static const char lend_job[] = "[job]\nmax_steps = 100\n"
                               "[model]\ntype = %s\n%s"
                               "[data]\n%s\n"
                               "[strategy]\ngradient_clipping = 0.5\n%s\n%s"
                               "[optimizer]\ntype = AdamW\nlr = 1e-2\n%s";

#define DEEP "n_layer = 6\nn_head = 2\nn_embd = 32\nblock_size = 32\n"
#define TEXT "type = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 4\n"
#define ROWS "type = csv\npath = jobs/data/iris.csv\nbatch_size = 64\n"

static const struct {
    const char *what, *model, *keys, *data, *strategy, *groups;
} cases[] = {
    {"gpt2", "gpt2", DEEP "dropout = 0.1\n", TEXT, "", ""},
    {"gpt2, bf16", "gpt2", DEEP "dropout = 0.1\n", TEXT, "mixed_precision = bf16", ""},
    {"gpt2, fp16", "gpt2", DEEP, TEXT, "mixed_precision = fp16", ""},
    {"gpt2, untied", "gpt2", DEEP "tie_word_embeddings = false\n", TEXT, "", ""},
    {"llama", "llama", DEEP, TEXT, "", ""},
    {"llama, bf16", "llama", DEEP, TEXT, "mixed_precision = bf16", ""},
    {"gpt2, some frozen", "gpt2", DEEP, TEXT, "",
     "[group.a]\nmatch = wte.weight, h.0.*, h.1.attn.c_attn.*, h.3.ln_1.bias\nfrozen = true\n"},
    {"gpt2, LoRA", "gpt2", DEEP "lora_rank = 16\nlora_targets = c_attn, c_fc\n", TEXT,
     "mixed_precision = bf16", ""},
    {"mlp", "mlp", "hidden = 48, 48, 48, 48\n", ROWS, "", ""},
};

static const char recompute[] = "activation_checkpointing = true\n";

static void open_case(struct train_run *t, struct comm *c, size_t i, const char *more,
                      const char *apart)
{
    char ini[2048], strategy[512];
    snprintf(strategy, sizeof strategy, "%s\n%s", cases[i].strategy, more);
    snprintf(ini, sizeof ini, lend_job, cases[i].model, cases[i].keys, cases[i].data, strategy,
             apart, cases[i].groups);
    train_open(t, c, ini, NULL);
}

static struct result steps_of(struct train_run *t)
{
    struct result r;
    struct eval_report e;
    for (int i = 0; i < N_STEPS; i++) {
        struct step_report s = train_step(t);
        r.loss[i] = s.loss;
        r.norm[i] = s.grad_norm;
        engine_eval(t->engine, 1, &e);
    }
    r.eval = e.loss;
    r.master = train_hash(t, SHARD_MASTER);
    r.moments = train_hash(t, SHARD_STATE) ^ train_hash(t, SHARD_STATE + 1);
    return r;
}

/* The first strategy lends, the second has no whole gradients. */
static void compare(struct comm *c, size_t i, const char *more)
{
    const char *whole = c->size == 1 ? "" : "distributed_type = MULTI_CPU\n";
    struct train_run t;
    open_case(&t, c, i, more, FSDP("FULL_SHARD", ""));
    struct result apart = steps_of(&t);
    size_t tape = t.engine->tape_bytes;
    CHECK(t.engine->lend.more_bytes == 0);
    train_close(&t);

    open_case(&t, c, i, more, whole);
    struct result lent = steps_of(&t);
    const struct lend *l = &t.engine->lend;
    CHECK(l->more_bytes > 0 && l->own_bytes == t.engine->tape_bytes && l->own_bytes < tape);
    CHECK(t.engine->tape.peak > l->own_bytes && t.engine->tape.top == 0);
    CHECK(lent.loss[N_STEPS - 1] < lent.loss[0]);
    check_same(&lent, &apart);
    train_close(&t);
}

/* Whoever keeps gradients longer lends none. */
static void test_kept(struct comm *c)
{
    static const char *const keeps[] = {
        "gradient_accumulation_steps = 2\n",
        "distributed_type = DEEPSPEED\n[plugin.d]\ntype = deepspeed\nzero_optimization.stage = 2\n",
    };
    for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) {
        struct train_run t;
        open_case(&t, c, 0, keeps[i], "");
        CHECK(t.engine->lend.more_bytes == 0);
        train_close(&t);
    }
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s: the bits of gradients that lie apart", cases[i].what);
        TEST (name)
            compare(c, i, "");
        if (strstr(cases[i].what, "mlp") || strstr(cases[i].what, "LoRA"))
            continue;
        snprintf(name, sizeof name, "%s, run again in backward: the same", cases[i].what);
        TEST (name)
            compare(c, i, recompute);
    }
    TEST ("gradients of several micro-batches, and of parts, are not lent")
        test_kept(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
