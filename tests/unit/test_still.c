/* Below the lowest trained tensor there is no backward: the bits of a run that goes all the way
 * down, with nothing run, gathered or kept there.
 * RUN: -n 1
 * RUN: -n 2 */
#include "strategy_run.h"

static const char job_text[] =
    "[job]\nmax_steps = 100\n"
    "[model]\ntype = %s\nn_layer = 3\nn_head = 2\nn_embd = 32\nblock_size = 16\n%s"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 2\n"
    "[optimizer]\nlr = 1e-2\n[strategy]\ngradient_clipping = 0.5\n%s\n%s";

#define ONLY(patterns)                                                                             \
    "[group.t]\nmatch = " patterns "\nfrozen = false\n[group.f]\nmatch = *\nfrozen = true\n"

static const struct {
    const char *name, *model, *model_keys, *groups;
    int n_still; /* blocks */
} models[] = {
    {"gpt2, all", "gpt2", "", "", 0},
    {"gpt2, the bottom frozen", "gpt2", "dropout = 0.1\n",
     "[group.f]\nmatch = w?e.weight, h.0.*, h.1.ln_1.*\nfrozen = true\n", 1},
    {"gpt2, a projection", "gpt2", "", ONLY("h.1.attn.c_proj.weight"), 1},
    {"gpt2, the last MLP", "gpt2", "", ONLY("h.2.mlp.c_proj.*"), 2},
    {"gpt2, the last norm", "gpt2", "", ONLY("ln_f.*"), 3},
    {"gpt2, positions", "gpt2", "", ONLY("wpe.weight"), 0},
    {"gpt2, LoRA", "gpt2", "dropout = 0.1\nlora_rank = 2\nlora_targets = c_fc\n", "", 0},
    {"llama, LoRA", "llama", "lora_rank = 2\nlora_dropout = 0.1\n", "", 0},
    {"llama, the head", "llama", "tie_word_embeddings = false\n", ONLY("lm_head.weight"), 3},
    {"llama, the last gate", "llama", "", ONLY("*.2.mlp.gate_proj.weight"), 2},
    {"llama, the last values", "llama", "", ONLY("*.2.self_attn.o_proj.weight, *.norm.weight"), 2},
};

static void move(struct module *m, void *arg)
{
    (void)arg;
    m->still = m->lowest = false;
}

static void set_up(struct train_run *t, struct comm *c, size_t model, const char *keys)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, models[model].model, models[model].model_keys, keys,
             models[model].groups);
    train_set_up(t, c, ini, NULL);
}

struct bits {
    double loss, norm;
    uint64_t master, moments;
};

static struct bits run(struct train_run *t)
{
    struct bits b = {0};
    for (int i = 0; i < 3; i++) {
        struct step_report s = train_step(t);
        b.loss += s.loss;
        b.norm += s.grad_norm;
    }
    b.master = train_hash(t, SHARD_MASTER);
    b.moments = train_hash(t, SHARD_STATE) ^ train_hash(t, SHARD_STATE + 1);
    return b;
}

/* Backward passes of blocks are counted by a class of our own in their place. */
static int n_backward;
static struct module_ops counting;
static const struct module_ops *counted;

static void count_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                           void *dx)
{
    n_backward++;
    counted->backward(m, p, x, dy, dx);
}

static void count_block(struct module *m, void *arg)
{
    (void)arg;
    if (strcmp(m->ops->cls, "Block") != 0)
        return;
    counted = m->ops;
    counting = *m->ops;
    counting.backward = count_backward;
    m->ops = &counting;
}

/* Bytes that all ranks gather. */
static double n_gathered;
static struct comm_ops watching;
static const struct comm_ops *watched;

static void watch_gather(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    n_gathered += (double)cut[c->size] * (double)elem_bytes;
    watched->all_gather(c, buf, cut, elem_bytes);
}

static const struct {
    const char *name, *keys;
} strategies[] = {
    {"DDP", "distributed_type = MULTI_CPU\n"},
    {"FULL_SHARD", FSDP("FULL_SHARD", "fsdp_forward_prefetch = true\n")},
    {"SHARD_GRAD_OP", FSDP("SHARD_GRAD_OP", "")},
    {"FULL_SHARD by classes, post",
     FSDP("FULL_SHARD", "fsdp_backward_prefetch = BACKWARD_POST\n"
                        "fsdp_transformer_layer_cls_to_wrap = Linear, Attention, MLP\n")},
    {"FULL_SHARD, blocks run again", "activation_checkpointing = true\n" FSDP("FULL_SHARD", "")},
    {"ZeRO-3, some stay", DEEPSPEED("3", ZERO("stage3_max_reuse_distance", "20000"))},
};

/* All of the tape, wherever it lies. */
static size_t planned_tape(const struct train_run *t)
{
    struct plan_memory m;
    const struct plan_case c = {.B = t->run.batching.max_local,
                                .T = t->run.model->shape.T,
                                .compute = t->run.shard.compute};
    plan_measure(t->run.model, t->dev, &c, &m);
    return m.tape_bytes;
}

static void test_bits(struct comm *c, size_t model)
{
    struct train_run t;
    set_up(&t, c, model, c->size > 1 ? "distributed_type = MULTI_CPU\n" : "");
    module_walk(t.run.model->root, move, NULL);
    train_start(&t);
    struct bits all = run(&t);
    size_t tape = planned_tape(&t);
    train_close(&t);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        char name[200];
        snprintf(name, sizeof name, "%s, %s: the bits of a whole backward", models[model].name,
                 strategies[i].name);
        TEST (name) {
            set_up(&t, c, model, strategies[i].keys);
            module_walk(t.run.model->root, count_block, NULL);
            train_start(&t);
            n_backward = 0;
            struct bits b = run(&t);
            CHECK(b.loss == all.loss && b.norm == all.norm);
            CHECK(b.master == all.master && b.moments == all.moments);
            CHECK(n_backward == 3 * (3 - models[model].n_still));
            CHECK(models[model].n_still == 0 || planned_tape(&t) < tape);
            train_close(&t);
        }
    }
}

/* Bytes that a step gathers: what the plan says. */
static double gathered(struct comm *c, size_t model, const char *keys)
{
    struct train_run t;
    struct shard_traffic x;
    const struct shard_world one = {1, 1, c->size};
    set_up(&t, c, model, keys);
    train_start(&t);
    train_step(&t);
    watched = t.engine->group->ops;
    watching = *watched;
    watching.all_gather = watch_gather;
    t.engine->group->ops = &watching;
    n_gathered = 0;
    train_step(&t);
    t.engine->group->ops = watched;
    shard_count_traffic(t.run.plan, t.run.model, &t.run.shard, &one, &x);
    CHECK_NEAR(n_gathered * (c->size - 1) / c->size, x.gathered, 1);
    train_close(&t);
    return n_gathered;
}

/* What the plan says is gathered is what a step gathers: still units once. */
static void test_gathers(struct comm *c)
{
    TEST ("a block without backward is gathered once a step, as the plan counts it") {
        double with[3], without = 0;
        for (size_t model = 0; model < 3; model++) {
            with[model] = gathered(c, model, FSDP("FULL_SHARD", ""));
            without = model == 0 ? with[0] : without;
        }
        /* one block of three, where all but the root are gathered twice */
        CHECK(with[1] < without && with[2] < without && with[1] > 0.6 * without);
    }
    TEST ("units inside a block that runs again are gathered once more, as the plan counts it") {
        const char *inner = FSDP("FULL_SHARD", "fsdp_transformer_layer_cls_to_wrap = Linear\n");
        const char *again = "activation_checkpointing = true\n" FSDP(
            "FULL_SHARD", "fsdp_transformer_layer_cls_to_wrap = Linear\n");
        for (size_t model = 0; model < 3; model++)
            CHECK(gathered(c, model, again) > 1.1 * gathered(c, model, inner));
    }
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        test_bits(c, i);
    if (c->size > 1)
        test_gathers(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
