/* LocalSGD: own steps between averages; one weight on all ranks behind one; every step averaged is
 * DDP where SGD takes them; a resume has the bits of the run that went on.
 * RUN: -n 2
 * RUN: -n 3 */
#include "train_run.h"

enum { N_STEPS = 6 };

static const char job_text[] =
    "[job]\nmax_steps = 6\noutput_dir = %s\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 4\n"
    "[optimizer]\ntype = %s\nlr = %s\n"
    "[strategy]\nmixed_precision = %s\nlocal_sgd_steps = %d\n%s";

struct variant {
    const char *optimizer, *lr, *precision;
    int every;
    const char *rest;
};

static void open_run(struct train_run *t, struct comm *c, const char *folder,
                     const struct variant *v, struct ckpt *from)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, folder, v->optimizer, v->lr, v->precision, v->every,
             v->rest);
    train_open(t, c, ini, from);
}

/* The mean over the ranks of what this rank holds, in fp64. */
static double *mean_weights(const struct train_run *t, int64_t *n)
{
    const struct shard *s = t->engine->shard;
    struct comm *c = t->run.comm;
    *n = s->plan->n_elem;
    int64_t *cut = calloc((size_t)c->size + 1, sizeof *cut);
    double *mean = calloc((size_t)*n, sizeof *mean);
    float *all = calloc((size_t)(*n * c->size), sizeof *all);
    for (int r = 0; r <= c->size; r++)
        cut[r] = *n * r;
    memcpy(all + *n * c->rank, s->master, (size_t)*n * sizeof *all);
    c->ops->all_gather(c, all, cut, sizeof *all);
    for (int64_t i = 0; i < *n; i++) {
        for (int r = 0; r < c->size; r++)
            mean[i] += all[*n * r + i];
        mean[i] /= c->size;
    }
    free(cut), free(all);
    return mean;
}

static void test_average(struct comm *c, const char *folder)
{
    const struct variant never = {"AdamW", "1e-3", "no", 100, ""},
                         third = {"AdamW", "1e-3", "no", 3, ""};
    struct train_run a, b;
    TEST ("between averages ranks differ; behind one they have the mean of their own steps") {
        int64_t n;
        open_run(&a, c, folder, &never, NULL);
        open_run(&b, c, folder, &third, NULL);
        CHECK(a.run.strategy.policy->averages && !a.run.plan->policy->shard_optim);
        for (int i = 0; i < 3; i++) {
            CHECK(train_same_on_all(&b, SHARD_MASTER) == (i == 0));
            CHECK(train_step(&a).loss == train_step(&b).loss);
        }
        CHECK(!train_same_on_all(&a, SHARD_MASTER) && train_same_on_all(&b, SHARD_MASTER));
        CHECK(!train_same_on_all(&b, SHARD_STATE));
        double *want = mean_weights(&a, &n), worst = 0;
        for (int64_t i = 0; i < n; i++)
            worst = fmax(worst, fabs(b.engine->shard->master[i] - want[i]));
        CHECK_NEAR(worst, 0, 3e-7);
        free(want);
        for (int i = 3; i < N_STEPS; i++)
            train_step(&a);
        CHECK(train_same_on_all(&a, SHARD_MASTER)); /* behind the last step in any case */
        train_close(&a);
        train_close(&b);
    }
}

static void test_ddp(struct comm *c, const char *folder)
{
    TEST ("averaged at every step, SGD is DDP but for rounding")
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct variant v = {"SGD", "0.1", bf16 ? "bf16" : "no", 1, ""}, ddp = v;
            struct train_run a, b;
            ddp.every = 0;
            open_run(&a, c, folder, &v, NULL);
            open_run(&b, c, folder, &ddp, NULL);
            for (int i = 0; i < N_STEPS; i++) {
                double x = train_step(&a).loss, y = train_step(&b).loss;
                CHECK_NEAR(x, y, (bf16 ? 1e-3 : 1e-6) * y);
            }
            train_close(&a);
            train_close(&b);
        }
}

static void test_resume(struct comm *c, const char *folder)
{
    const struct variant v = {"AdamW", "1e-3", "bf16", 2, ""};
    struct train_run straight, rest;
    TEST ("a resume, also between averages, goes on with the bits of the run that saved") {
        struct arena *a = arena_create();
        const char *dir;
        struct ckpt *k;
        open_run(&straight, c, folder, &v, NULL);
        for (int i = 0; i < 3; i++)
            train_step(&straight);
        engine_settle(straight.engine);
        CHECK(train_same_on_all(&straight, SHARD_MASTER) &&
              train_same_on_all(&straight, SHARD_STATE));
        train_must(train_save(&straight, CKPT_FULL));
        c->ops->barrier(c);
        train_must(ckpt_find(folder, a, &dir));
        train_must(ckpt_open(dir, &k));
        open_run(&rest, c, folder, &v, k);
        for (int i = 3; i < N_STEPS; i++)
            CHECK(train_step(&straight).loss == train_step(&rest).loss);
        for (int i = SHARD_MASTER; i < SHARD_STATE + 2; i++)
            if (i != SHARD_GRAD)
                CHECK(train_hash_held(&straight, i) == train_hash_held(&rest, i));
        train_close(&rest);
        train_close(&straight);
        arena_destroy(&a);
    }
}

static void refused(struct comm *c, const char *rest, const char *want)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, "x", "AdamW", "1e-3", "no", 4, rest);
    train_refused(c, ini, want);
}

int main(void)
{
    struct comm *c;
    char folder[256];
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    train_folder(c, folder, sizeof folder);
    test_average(c, folder);
    test_ddp(c, folder);
    test_resume(c, folder);
    TEST ("what does not go with it is refused") {
        refused(c, "distributed_type = FSDP\n", "local_sgd_steps = 4: goes with DDP");
        refused(c, "sync_each_batch = true\n", "means nothing with local_sgd_steps");
        refused(c, "[eval]\nevery_steps = 6\n", "every_steps = 6: must be a multiple");
        refused(c, "[checkpoint]\nevery_steps = 2\n", "every_steps = 2: must be a multiple");
    }
    return train_end(&c, folder);
}
