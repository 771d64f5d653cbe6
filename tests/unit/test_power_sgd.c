/* PowerSGD: with all directions it is the sum; with a few, what is lost is in the errors; a resume
 * has the bits of the run that saved.
 * RUN: -n 2
 * RUN: -n 3 */
#include "train_run.h"

enum { N_STEPS = 6 };

static const char job_text[] =
    "[job]\nmax_steps = 6\noutput_dir = %s\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 4\n"
    "[optimizer]\ntype = AdamW\nlr = 1e-2\n"
    "[strategy]\ngradient_clipping = 1\n%s";

#define OPTION "comm_state_option."
#define FEW                                                                                        \
    "comm_hook = power_sgd\n" OPTION "matrix_approximation_rank = 2\n" OPTION                      \
    "start_powersgd_iter = 1\n"
static const char plain[] = "distributed_type = MULTI_CPU\n", few[] = FEW;
static const char all[] =
    "comm_hook = power_sgd\n" OPTION "matrix_approximation_rank = 65536\n" OPTION
    "start_powersgd_iter = 0\n" OPTION "min_compression_rate = 0\n";

static void open_run(struct train_run *t, struct comm *c, const char *folder, const char *keys,
                     struct ckpt *from)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, folder, keys);
    train_open(t, c, ini, from);
}

static void test_full_rank(struct comm *c, const char *folder)
{
    struct train_run a, b;
    TEST ("with as many directions as a matrix has it is the sum") {
        open_run(&a, c, folder, plain, NULL);
        open_run(&b, c, folder, all, NULL);
        for (int i = 0; i < N_STEPS; i++) {
            struct step_report x = train_step(&a), y = train_step(&b);
            CHECK_NEAR(y.loss, x.loss, 1e-5 * x.loss);
            CHECK_NEAR(y.grad_norm, x.grad_norm, 1e-4 * x.grad_norm);
            CHECK(train_same_on_all(&b, SHARD_MASTER));
        }
        train_close(&a);
        train_close(&b);
    }
}

/* Largest part of the gradient that is in neither sum nor errors, as a share of the largest. */
static double lost(const struct train_run *sum, const struct train_run *power)
{
    double worst = 0, most = 0;
    for (int r = 0; r < sum->run.plan->n_rows; r++) {
        struct shard_part g = shard_held_part(sum->engine->shard, SHARD_GRAD, r);
        struct shard_part h = shard_held_part(power->engine->shard, SHARD_GRAD, r);
        struct shard_part e = shard_held_part(power->engine->shard, SHARD_HOOK_ERROR, r);
        for (int64_t i = 0; i < g.end; i++) {
            double missing = e.values ? e.values[i] : 0;
            worst = fmax(worst, fabs(g.values[i] - h.values[i] - missing));
            most = fmax(most, fabs((double)g.values[i]));
        }
    }
    return worst / most;
}

static void test_feedback(struct comm *c, const char *folder)
{
    struct train_run a, b;
    TEST ("with two directions: less is sent, what is lost is kept, and the loss falls") {
        struct shard_traffic x, y;
        open_run(&a, c, folder, plain, NULL);
        open_run(&b, c, folder, few, NULL);
        double first = train_step(&a).loss;
        CHECK(train_step(&b).loss == first); /* step 1 is summed as it is */
        CHECK(train_hash_held(&a, SHARD_MASTER) == train_hash_held(&b, SHARD_MASTER));
        train_step(&a);
        train_step(&b);
        CHECK(!train_same_on_all(&b, SHARD_HOOK_ERROR) && train_same_on_all(&b, SHARD_MASTER));
        engine_settle(b.engine);
        CHECK(train_same_on_all(&b, SHARD_HOOK_ERROR));
        CHECK_NEAR(lost(&a, &b), 0, 1e-5);
        for (int i = 2; i < N_STEPS - 1; i++)
            train_step(&b);
        CHECK(train_step(&b).loss < 0.97 * first);
        shard_count_traffic(a.run.plan, a.run.model, &a.run.shard, &(struct shard_world){1, 1, 1},
                            &x);
        shard_count_traffic(b.run.plan, b.run.model, &b.run.shard, &(struct shard_world){1, 1, 1},
                            &y);
        CHECK(y.sent < 0.4 * x.sent);
        train_close(&a);
        train_close(&b);
    }
}

static void test_resume(struct comm *c, const char *folder)
{
    struct train_run straight, rest;
    TEST ("a resume goes on with the bits of the run that saved") {
        struct arena *a = arena_create();
        const char *dir;
        struct ckpt *k;
        open_run(&straight, c, folder, few, NULL);
        for (int i = 0; i < 3; i++)
            train_step(&straight);
        engine_settle(straight.engine);
        train_must(train_save(&straight, CKPT_FULL));
        c->ops->barrier(c);
        train_must(ckpt_find(folder, a, &dir));
        train_must(ckpt_open(dir, &k));
        open_run(&rest, c, folder, few, k);
        for (int i = 3; i < N_STEPS; i++)
            CHECK(train_step(&straight).loss == train_step(&rest).loss);
        CHECK(train_hash_held(&straight, SHARD_MASTER) == train_hash_held(&rest, SHARD_MASTER));
        CHECK(train_hash_held(&straight, SHARD_HOOK_ERROR) ==
              train_hash_held(&rest, SHARD_HOOK_ERROR));
        CHECK(train_hash_held(&straight, SHARD_HOOK_Q) == train_hash_held(&rest, SHARD_HOOK_Q));
        train_close(&rest);
        train_close(&straight);
        /* without the hook, from the same checkpoint */
        train_must(ckpt_open(dir, &k));
        open_run(&rest, c, folder, plain, k);
        CHECK(rest.engine->step == 3 && train_step(&rest).loss > 0);
        train_close(&rest);
        arena_destroy(&a);
    }
}

/* Of the whole model, the same on all ranks after a settle. */
static double largest_error(const struct train_run *t, double scale, const struct train_run *other)
{
    double worst = 0;
    for (int r = 0; r < t->run.plan->n_rows; r++) {
        struct shard_part e = shard_held_part(t->engine->shard, SHARD_HOOK_ERROR, r), o = {0};
        if (other)
            o = shard_held_part(other->engine->shard, SHARD_HOOK_ERROR, r);
        for (int64_t i = 0; i < e.end; i++)
            worst = fmax(worst, fabs(e.values[i] - (other ? scale * o.values[i] : 0)));
    }
    return worst;
}

static void test_other_world(struct comm *c, const char *folder)
{
    struct train_run saved, rest;
    TEST ("on fewer ranks each owes more: together what they owed") {
        struct arena *a = arena_create();
        struct comm *two = comm_split(c, c->rank < 2, c->rank);
        const char *dir;
        struct ckpt *k;
        open_run(&saved, c, folder, few, NULL);
        for (int i = 0; i < 4; i++)
            train_step(&saved);
        engine_settle(saved.engine);
        train_must(train_save(&saved, CKPT_FULL));
        c->ops->barrier(c);
        train_must(ckpt_find(folder, a, &dir));
        if (c->rank < 2) {
            train_must(ckpt_open(dir, &k));
            open_run(&rest, two, folder, few, k);
            double most = largest_error(&rest, 0, NULL);
            CHECK(most > 0 && largest_error(&rest, 1.5, &saved) < 1e-6 * most);
            CHECK(train_hash_held(&rest, SHARD_HOOK_Q) == train_hash_held(&saved, SHARD_HOOK_Q));
            double first = train_step(&rest).loss;
            CHECK(first > 0 && train_step(&rest).loss > 0 &&
                  train_same_on_all(&rest, SHARD_MASTER));
            train_close(&rest);
        }
        train_close(&saved);
        comm_close(&two);
        arena_destroy(&a);
    }
}

static void test_compressed(struct comm *c, const char *folder)
{
    TEST ("comm_hook = bf16 and fp16 are reduce_dtype, and round")
        for (int half = 0; half < 2; half++) {
            static const char *const keys[][2] = {{"comm_hook = bf16\n", "reduce_dtype = bf16\n"},
                                                  {"comm_hook = fp16\n", "reduce_dtype = fp16\n"}};
            struct train_run a, b, exact;
            open_run(&a, c, folder, keys[half][0], NULL);
            open_run(&b, c, folder, keys[half][1], NULL);
            open_run(&exact, c, folder, plain, NULL);
            train_step(&a), train_step(&b), train_step(&exact);
            CHECK(a.run.shard.reduce == (half ? DTYPE_F16 : DTYPE_BF16));
            CHECK(train_hash_held(&a, SHARD_MASTER) == train_hash_held(&b, SHARD_MASTER));
            CHECK(train_hash_held(&a, SHARD_MASTER) != train_hash_held(&exact, SHARD_MASTER));
            train_close(&a), train_close(&b), train_close(&exact);
        }
}

/* dir: the checkpoint to go on from, NULL: none. */
static void refused_from(struct comm *c, const char *dir, const char *keys, const char *want)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, "x", keys);
    train_refused_from(c, dir, ini, want);
}

static void refused(struct comm *c, const char *keys, const char *want)
{
    refused_from(c, NULL, keys, want);
}

static void test_other_settings(struct comm *c, const char *folder)
{
    TEST ("a resume with other settings says which, or leaves out what it is told to") {
        struct arena *a = arena_create();
        struct train_run t;
        const char *dir;
        struct ckpt *k;
        train_must(ckpt_find(folder, a, &dir));
        refused_from(c, dir, "comm_hook = power_sgd\n" OPTION "matrix_approximation_rank = 1\n",
                     "matrix_approximation_rank = 1: is not what");
        refused_from(c, dir,
                     "comm_hook = power_sgd\n" OPTION "matrix_approximation_rank = 2\n" OPTION
                     "min_compression_rate = 1000\n",
                     "is not compressed");
        train_must(ckpt_open(dir, &k));
        open_run(&t, c, folder,
                 "comm_hook = power_sgd\n" OPTION "warm_start = false\n" OPTION
                 "use_error_feedback = false\n" OPTION "start_powersgd_iter = 0\n",
                 k);
        CHECK(train_step(&t).loss > 0);
        train_close(&t);
        arena_destroy(&a);
    }
}

int main(void)
{
    struct comm *c;
    char folder[256];
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    train_folder(c, folder, sizeof folder);
    test_full_rank(c, folder);
    test_feedback(c, folder);
    test_resume(c, folder);
    test_other_settings(c, folder);
    if (c->size == 3)
        test_other_world(c, folder);
    test_compressed(c, folder);
    TEST ("what does not go with it is refused") {
        refused(c, FEW "distributed_type = FSDP\n", "comm_hook = power_sgd: goes with DDP");
        refused(c, FEW "local_sgd_steps = 2\n", "comm_hook = power_sgd: goes with DDP");
        refused(c, "comm_hook = bf16\nreduce_dtype = fp16\n", "say different things");
        refused(c, FEW "sync_each_batch = true\n", "does not go with sync_each_batch");
        refused(c, FEW "mixed_precision = fp16\n", "does not go with fp16");
    }
    return train_end(&c, folder);
}
