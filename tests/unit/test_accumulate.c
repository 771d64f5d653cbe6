/* Accumulation: whole gradients until the boundary (no_sync) have the bits of DDP's; sums in a
 * lower dtype are the same under every strategy; a short last window is exact.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 4 */
#include "train_run.h"

enum { N_STEPS = 3 };

struct result {
    double loss[N_STEPS], norm[N_STEPS];
    uint64_t master;
    size_t grad_bytes;
};

static const char job[] =
    "[job]\nmax_steps = 100\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\ndropout = 0.1\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 2\n"
    "[optimizer]\nlr = 1e-2\n"
    "[strategy]\ngradient_accumulation_steps = 3\ngradient_clipping = 0.5\n%s%s";

static struct result run(struct comm *c, const char *keys, const char *strategy)
{
    char ini[2048];
    struct train_run t;
    struct result r;
    struct shard_memory m;
    snprintf(ini, sizeof ini, job, keys, strategy);
    train_open(&t, c, ini, NULL);
    for (int i = 0; i < N_STEPS; i++) {
        struct step_report s = train_step(&t);
        r.loss[i] = s.loss;
        r.norm[i] = s.grad_norm;
    }
    r.master = train_hash(&t, SHARD_MASTER);
    shard_measure(t.run.plan, t.run.model, &t.run.shard, 0, &m);
    r.grad_bytes = m.grad;
    train_close(&t);
    return r;
}

static bool same(const struct result *a, const struct result *b)
{
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->norm, b->norm, sizeof a->norm) == 0 && a->master == b->master;
}

static const char *const strategies[] = {
    "distributed_type = FSDP\n",
    "distributed_type = FSDP\n[plugin]\ntype = fsdp\nfsdp_sharding_strategy = SHARD_GRAD_OP\n",
    "distributed_type = FSDP\n[plugin]\ntype = fsdp\nfsdp_sharding_strategy = HYBRID_SHARD\n"
    "dp_shard_size = 1\n",
    "distributed_type = DEEPSPEED\n[plugin]\ntype = deepspeed\nzero_optimization.stage = 2\n",
    "distributed_type = DEEPSPEED\n[plugin]\ntype = deepspeed\nzero_optimization.stage = 3\n",
    "distributed_type = DEEPSPEED\n[plugin]\ntype = deepspeed\nzero_optimization.stage = 1\n",
};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies };

static void test_no_sync(struct comm *c)
{
    struct result ddp = run(c, "", "");
    TEST ("no_sync: DDP's bits, and a whole gradient on every rank") {
        for (int i = 0; i < N_STRATEGIES; i++) {
            struct result r = run(c, "no_sync = true\n", strategies[i]);
            CHECK(same(&r, &ddp));
            CHECK(r.grad_bytes >= ddp.grad_bytes);
        }
    }
    if (c->size > 2)
        TEST ("without it sharded gradients are summed at every micro-step, in another order") {
            struct result r = run(c, "", strategies[0]);
            CHECK(r.grad_bytes < ddp.grad_bytes);
            CHECK(!same(&r, &ddp));
            CHECK_NEAR(r.loss[N_STEPS - 1], ddp.loss[N_STEPS - 1], 1e-4);
        }
}

static void test_reduce(struct comm *c)
{
    static const char *const words[] = {"bf16", "fp16"};
    struct result whole = run(c, "sync_each_batch = true\n", "");
    for (int w = 0; w < 2; w++) {
        char name[80], keys[80];
        snprintf(name, sizeof name, "sums in %s: the same bits under every strategy", words[w]);
        snprintf(keys, sizeof keys, "sync_each_batch = true\nreduce_dtype = %s\n", words[w]);
        TEST (name) {
            struct result ddp = run(c, keys, "");
            CHECK(same(&ddp, &whole) == (c->size == 1));
            CHECK_NEAR(ddp.norm[0], whole.norm[0], (w ? 2e-3 : 1e-2) * whole.norm[0]);
            for (int i = 0; i < N_STRATEGIES; i++) {
                struct result r = run(c, keys, strategies[i]);
                CHECK(same(&r, &ddp));
            }
        }
    }
}

/* 10 rows: windows of 8 and of the 2 that are left, whether in micro-batches or in one. */
static void test_short_window(struct comm *c)
{
    static const char rows[] =
        "[job]\nnum_epochs = 3\n[model]\ntype = mlp\nhidden = 8\n"
        "[data]\ntype = csv\npath = %s\nsplit = 1\nsplit_batches = true\nbatch_size = %d\n"
        "[optimizer]\ntype = SGD\nlr = 0.05\n[strategy]\ngradient_accumulation_steps = %d\n%s";
    char folder[200], path[300], ini[1024];
    train_folder(c, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    if (c->rank == 0) {
        FILE *f = fopen(path, "w");
        REQUIRE(f);
        fprintf(f, "a,b,y\n");
        for (int i = 0; i < 10; i++)
            fprintf(f, "%d.5,%d.25,%d.125\n", i % 7, i % 4, i % 5);
        fclose(f);
    }
    c->ops->barrier(c);
    TEST ("a short last window counts its own samples") {
        struct train_run one, some, shared;
        snprintf(ini, sizeof ini, rows, path, 8, 1, "");
        train_open(&one, c, ini, NULL);
        snprintf(ini, sizeof ini, rows, path, 4, 2, "");
        train_open(&some, c, ini, NULL);
        snprintf(ini, sizeof ini, rows, path, 4, 2, "distributed_type = FSDP\nno_sync = true\n");
        train_open(&shared, c, ini, NULL);
        CHECK(one.run.batching.total_steps == 6 && some.run.batching.total_steps == 6);
        for (int i = 0; i < 6; i++) {
            struct step_report a = train_step(&one), b = train_step(&some);
            struct step_report d = train_step(&shared);
            CHECK_NEAR(a.loss, b.loss, 1e-6 * a.loss);
            CHECK_NEAR(a.grad_norm, b.grad_norm, 1e-5 * a.grad_norm);
            CHECK(b.loss == d.loss && b.grad_norm == d.grad_norm);
            CHECK(one.engine->samples == (i / 2 + 1) * 10 - (i % 2 ? 0 : 2));
            CHECK(some.engine->samples == one.engine->samples);
        }
        train_close(&one);
        train_close(&some);
        train_close(&shared);
    }
    c->ops->barrier(c);
    if (c->rank == 0) {
        remove(path);
        remove(folder);
    }
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    test_no_sync(c);
    test_reduce(c);
    test_short_window(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
