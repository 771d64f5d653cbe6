/* A checkpoint belongs to the training, not to the machine: saved by 4 ranks under FULL_SHARD, full
 * and sharded, loaded by 1, 2, 3 and 8 under every strategy, other units and another precision: the
 * same weights and moments, bit for bit; and each rank reads what it owns.
 * RUN: -n 8 */
#include "train_run.h"

enum { SAVED_BY = 4, N_STEPS = 3 };

static const char job[] =
    "[job]\noutput_dir = %s\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\n"
    "[data]\npath = %s/book.txt\nsplit = 1\nbatch_size = 2\n"
    "[optimizer]\ntype = AdamW\nlr = 1e-3\n"
    "[checkpoint]\non_world_change = keep_per_rank\n%s";

struct state {
    int64_t *bits;           /* owned: of every element of every array, one array behind another */
    int64_t *at;             /* owned: (n + 1) where an array begins */
    struct run_place *place; /* in the run's arena */
    int n;
};

static void state_init(struct state *s, const struct run *r)
{
    const struct ckpt_array *arrays = run_arrays(r, &s->n, &s->place);
    s->at = calloc((size_t)s->n + 1, sizeof *s->at);
    for (int i = 0; i < s->n; i++)
        s->at[i + 1] = s->at[i] + shape_elems(&arrays[i].shape);
    s->bits = calloc((size_t)s->at[s->n], sizeof *s->bits);
}

/* Every element from the rank that owns it.  Collective on c. */
static void gather_state(const struct train_run *t, struct comm *c, struct state *s)
{
    state_init(s, &t->run);
    for (int i = 0; i < s->n; i++) {
        struct shard_part p = shard_own_part(t->engine->shard, s->place[i].array, s->place[i].row);
        for (int64_t e = p.begin; e < p.end; e++)
            s->bits[s->at[i] + e] = f32_bits(p.values[e - p.begin]);
    }
    c->ops->sum_i64(c, s->bits, (int)s->at[s->n]);
}

/* Bytes that a rank owns, and whether all that it holds is as it was. */
static int64_t check_state(const struct train_run *t, const struct state *s, const char *what)
{
    int64_t n_own = 0, n_wrong = 0;
    int n;
    struct run_place *place;
    run_arrays(&t->run, &n, &place);
    CHECK(n == s->n);
    for (int i = 0; i < s->n; i++) {
        struct shard_part p = shard_held_part(t->engine->shard, place[i].array, place[i].row);
        for (int64_t e = p.begin; e < p.end; e++)
            n_wrong += f32_bits(p.values[e - p.begin]) != s->bits[s->at[i] + e];
        p = shard_own_part(t->engine->shard, place[i].array, place[i].row);
        n_own += (p.end - p.begin) * (int64_t)sizeof(float);
    }
    check_that(n_wrong == 0, __FILE__, __LINE__, "%s: %lld elements differ", what,
               (long long)n_wrong);
    return n_own;
}

static struct comm *first_ranks(struct comm *world, int n)
{
    return comm_split(world, world->rank < n, world->rank);
}

static const struct {
    const char *name, *keys;
} ways[] = {
    {"DDP", "[strategy]\ndistributed_type = MULTI_CPU\n"},
    {"ZERO_0",
     "[strategy]\nplugin = z\n[plugin.z]\ntype = deepspeed\nzero_optimization.stage = 0\n"},
    {"ZERO_1",
     "[strategy]\nplugin = z\n[plugin.z]\ntype = deepspeed\nzero_optimization.stage = 1\n"},
    {"ZERO_2",
     "[strategy]\nplugin = z\n[plugin.z]\ntype = deepspeed\nzero_optimization.stage = 2\n"},
    {"ZERO_3 bf16", "[strategy]\nplugin = z\nmixed_precision = bf16\n"
                    "[plugin.z]\ntype = deepspeed\nzero_optimization.stage = 3\n"},
    {"SHARD_GRAD_OP", "[strategy]\ndistributed_type = FSDP\n"
                      "[plugin]\ntype = fsdp\nfsdp_sharding_strategy = SHARD_GRAD_OP\n"},
    {"FULL_SHARD, one unit", "[strategy]\ndistributed_type = FSDP\n"
                             "[plugin]\ntype = fsdp\nfsdp_auto_wrap_policy = NO_WRAP\n"},
    {"HYBRID_SHARD", "[strategy]\ndistributed_type = FSDP\n[plugin]\ntype = fsdp\n"
                     "fsdp_sharding_strategy = HYBRID_SHARD\ndp_shard_size = 2\n"},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* Load on c under one way. */
static void load(struct comm *c, const char *dir, const char *folder, int way,
                 const struct state *want)
{
    char ini[2048], out[300];
    struct train_run t;
    struct ckpt *k;
    snprintf(out, sizeof out, "%s/unused", folder);
    snprintf(ini, sizeof ini, job, out, folder, ways[way].keys);
    train_must(ckpt_open_shared(c, dir, &k));
    train_open(&t, c, ini, k);
    CHECK(t.engine->step == N_STEPS);
    int64_t n_own = check_state(&t, want, ways[way].name), n_read = ckpt_bytes_read(k);
    /* what is checked together is read together: at most one range more at each end */
    int64_t most = n_own;
    for (int i = 0; i < want->n; i++)
        most += n_own > 0 ? (want->at[i + 1] - want->at[i]) * 4 : 0;
    check_that(n_read <= most, __FILE__, __LINE__, "%s: %lld bytes read, %lld owned",
               ways[way].name, (long long)n_read, (long long)n_own);
    train_close(&t);
}

static void test_types(struct comm *world, const char *folder)
{
    static const int sizes[] = {1, 2, 3, 8};
    for (int type = CKPT_FULL; type <= CKPT_SHARDED; type++) {
        char ini[2048], saves[300], step[400];
        struct state want = {0};
        struct comm *c = first_ranks(world, SAVED_BY);
        snprintf(saves, sizeof saves, "%s/%s", folder, ckpt_type_words[type]);
        snprintf(step, sizeof step, "%s/step-%08d", saves, N_STEPS);
        snprintf(ini, sizeof ini, job, saves, folder, "[strategy]\ndistributed_type = FSDP\n");
        if (world->rank < SAVED_BY) {
            struct train_run t;
            train_open(&t, c, ini, NULL);
            for (int i = 0; i < N_STEPS; i++)
                train_step(&t);
            train_must(train_save(&t, (enum ckpt_type)type));
            gather_state(&t, c, &want);
            /* at the same ranks: what is owned, and not a byte more */
            struct ckpt *k;
            train_must(ckpt_open_shared(c, c->rank == 0 ? step : NULL, &k));
            t.engine->shard->master[0] += 1;
            train_step(&t);
            train_must(save_load(t.engine, k));
            shard_refresh(t.engine->shard);
            int64_t n_own = check_state(&t, &want, "the running process");
            CHECK(t.engine->step == N_STEPS);
            CHECK(ckpt_bytes_read(k) == n_own);
            ckpt_close(&k);
            train_close(&t);
        }
        comm_close(&c);
        int64_t n = want.n > 0 ? want.at[want.n] : 0;
        world->ops->broadcast(world, &n, sizeof n, 0);
        world->ops->broadcast(world, &want.n, sizeof want.n, 0);
        if (!want.bits) {
            want.bits = calloc((size_t)n, sizeof *want.bits);
            want.at = calloc((size_t)want.n + 1, sizeof *want.at);
        }
        world->ops->broadcast(world, want.bits, (size_t)n * sizeof *want.bits, 0);
        world->ops->broadcast(world, want.at, ((size_t)want.n + 1) * sizeof *want.at, 0);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            c = first_ranks(world, sizes[s]);
            /* each type meets every way, each size half of them a type */
            for (int way = 0; way < N_WAYS && world->rank < sizes[s]; way++)
                if ((way + type + (int)s) % 2 == 0 && (way < N_WAYS - 1 || sizes[s] % 2 == 0))
                    load(c, c->rank == 0 ? step : NULL, folder, way, &want);
            comm_close(&c);
            world->ops->barrier(world);
        }
        free(want.bits);
        free(want.at);
    }
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    char folder[200];
    train_folder(c, folder, sizeof folder);
    train_book(c, folder, 20000);
    TEST ("4 ranks to 1, 2, 3, 8 under any strategy: the same bits, and no more read than owned") {
        test_types(c, folder);
    }
    return train_end(&c, folder);
}
