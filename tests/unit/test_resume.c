/* Stopping and going on: bitwise at the same ranks, every sample once an epoch at others.
 * RUN: -n 1
 * RUN: -n 4 */
#include "train_run.h"

#include "train/save.h"

enum { N_STEPS = 100, N_SAMPLES = 101, BATCH = 4 };

static const char gpt_job[] =
    "[job]\nmax_steps = 100\noutput_dir = %s\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\ndropout = 0.1\n"
    "[data]\ntype = text\npath = %s/book.txt\nbatch_size = 2\n"
    "[strategy]\ngradient_accumulation_steps = 2\ngradient_clipping = 0.5\n"
    "[optimizer]\ntype = AdamW\nlr = 1e-2\nweight_decay = 0.1\n"
    "[scheduler]\ntype = cosine\nwarmup_num_steps = 20\n"
    "[checkpoint]\nkeep = 2\n"
    "[group.still]\nmatch = h.0.mlp.c_fc.*, h.1.ln_1.bias\nfrozen = true\n"
    "[group.fast]\nmatch = *.bias\nlr_scale = 2\nweight_decay = 0.3\n";

/* Everything that training changes, in one number. */
static uint64_t fingerprint(const struct train_run *t)
{
    const struct shard *s = t->engine->shard;
    uint64_t h = 0;
    for (int r = 0; r < s->plan->n_rows; r++) {
        struct shard_part p = shard_held_part(s, SHARD_MASTER, r);
        h = hash64(p.values, (size_t)(p.end - p.begin) * sizeof(float), h);
        for (int i = 0; i < s->conf.n_states; i++) {
            p = shard_held_part(s, SHARD_STATE + i, r);
            h = hash64(p.values, (size_t)(p.end - p.begin) * sizeof(float), h);
        }
    }
    return h;
}

static void test_bitwise(struct comm *c, const char *folder)
{
    char ini[2048], saves[300];
    struct train_run straight, first, rest;
    double losses[N_STEPS];
    snprintf(saves, sizeof saves, "%s/bitwise", folder);
    snprintf(ini, sizeof ini, gpt_job, saves, folder);
    train_open(&straight, c, ini, NULL);
    for (int i = 0; i < N_STEPS; i++)
        losses[i] = train_step(&straight).loss;
    CHECK(losses[N_STEPS - 1] < 0.8 * losses[0]);
    train_open(&first, c, ini, NULL);
    for (int i = 0; i < N_STEPS / 2; i++)
        CHECK(train_step(&first).loss == losses[i]);
    train_must(train_save(&first, CKPT_SHARDED));
    train_close(&first);
    train_open(&rest, c, ini, train_newest(c, saves, straight.arena));
    CHECK(rest.engine->step == N_STEPS / 2);
    for (int i = N_STEPS / 2; i < N_STEPS; i++)
        CHECK(train_step(&rest).loss == losses[i]);
    CHECK(fingerprint(&rest) == fingerprint(&straight));
    /* into the running process: load right after save */
    train_must(train_save(&rest, CKPT_FULL));
    struct ckpt *k = train_newest(c, saves, straight.arena);
    uint64_t before = fingerprint(&rest);
    rest.engine->shard->master[0] += 1;
    train_must(save_load_weights(rest.engine, k));
    shard_refresh(rest.engine->shard);
    CHECK(fingerprint(&rest) == before);
    ckpt_close(&k);
    train_close(&rest);
    train_close(&straight);
}

static const char mlp_job[] = "[job]\nnum_epochs = 2\noutput_dir = %s\n"
                              "[model]\ntype = mlp\n"
                              "[data]\ntype = csv\npath = %s/rows.csv\nsplit = 1\nbatch_size = %d\n"
                              "[optimizer]\ntype = SGD\nlr = 0.01\n";

/* Take steps until the run ends or n are done; count what every sample of each epoch was seen. */
static void count_steps(struct train_run *t, struct comm *c, int n, int64_t seen[2][N_SAMPLES])
{
    struct window w;
    struct step_report s;
    for (int i = 0; i < n && t->engine->step < t->run.batching.total_steps; i++) {
        int64_t here[2][N_SAMPLES] = {{0}};
        engine_draw(t->engine, &w);
        for (int64_t m = 0; m < w.n_micro; m++) {
            engine_forward(t->engine, &w, m);
            const struct batch *b = &t->engine->train.batch;
            CHECK(b->B <= t->run.batching.max_local);
            for (int64_t k = 0; k < b->B; k++)
                here[w.epoch][b->sample[k]]++;
            engine_backward(t->engine, &w, m);
        }
        train_must(engine_step(t->engine, &w, &s));
        c->ops->sum_i64(c, &here[0][0], 2 * N_SAMPLES);
        for (int64_t k = 0; k < 2 * N_SAMPLES; k++)
            (&seen[0][0])[k] += (&here[0][0])[k];
        if (w.n == t->run.batching.n_samples - w.begin)
            continue; /* the epoch's last window may be short */
        CHECK(w.n == 4 * BATCH);
    }
}

/* One leg of a journey on the first n_ranks of the world. */
static void leg(struct comm *world, int n_ranks, int n_steps, const char *folder, const char *saves,
                int64_t seen[2][N_SAMPLES])
{
    struct comm *c = comm_split(world, world->rank < n_ranks, world->rank);
    struct arena *a = arena_create();
    if (world->rank < n_ranks) {
        char ini[2048];
        struct train_run t;
        const char *dir = NULL;
        snprintf(ini, sizeof ini, mlp_job, saves, folder, BATCH);
        train_must(ckpt_find(saves, a, &dir));
        c->ops->barrier(c);
        train_open(&t, c, ini, dir ? train_newest(c, saves, a) : NULL);
        CHECK(t.run.batching.micro_global == 4 * BATCH);
        count_steps(&t, c, n_steps, seen);
        train_must(train_save(&t, CKPT_FULL));
        train_close(&t);
    }
    comm_close(&c);
    arena_destroy(&a);
    world->ops->barrier(world);
}

static void test_journey(struct comm *c, const char *folder)
{
    char saves[300];
    int64_t seen[2][N_SAMPLES] = {{0}};
    snprintf(saves, sizeof saves, "%s/journey", folder);
    if (c->rank == 0)
        train_must(file_make_dirs(saves));
    c->ops->barrier(c);
    leg(c, 4, 3, folder, saves, seen);         /* 48 samples of the first epoch */
    leg(c, 2, 5, folder, saves, seen);         /* over its short end into the second */
    leg(c, 3, 100, folder, saves, seen);       /* 16 samples on 3 ranks are 6, 5, 5 */
    for (int e = 0; e < 2 && c->rank < 2; e++) /* ranks 0 and 1 saw every leg */
        for (int i = 0; i < N_SAMPLES; i++)
            check_that(seen[e][i] == 1, __FILE__, __LINE__, "sample %d of epoch %d: %lld times", i,
                       e, (long long)seen[e][i]);
}

static void write_rows(const char *path)
{
    struct text t = {0};
    text_printf(&t, "a,b,y\n");
    for (int i = 0; i < N_SAMPLES; i++)
        text_printf(&t, "%d.5,%d.25,%d.125\n", i % 7, i % 11, i % 5);
    train_must(file_write(path, t.s, t.n_bytes));
    text_clear(&t);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    char folder[200], path[300];
    train_folder(c, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/rows.csv", folder);
    if (c->rank == 0)
        write_rows(path);
    train_book(c, folder, 20000);
    TEST ("resume at step 50 of 100 gives the bits of the run that never stopped") {
        test_bitwise(c, folder);
    }
    if (c->size == 4) {
        TEST ("4, then 2, then 3 ranks: every sample once an epoch, the global batch kept") {
            test_journey(c, folder);
        }
    }
    return train_end(&c, folder);
}
