/* What a save sends, counted at the communicator's table on 2, 8 and 32 ranks: as many operations,
 * and no more bytes a rank, however many ranks there are.
 * RUN: -n 32 */
#include "train_run.h"

#include "base/file.h"

enum { N_WORLDS = 3, N_ARRAYS = 3, PART_ELEMS = 1024 };
static const int world_sizes[N_WORLDS] = {2, 8, 32};

struct traffic {
    int64_t n_calls, sent, received; /* bytes that this rank gives and gets */
    int64_t n_bulk;                  /* operations in which parts of the model would travel */
};
static struct traffic traffic;
static const struct comm_ops *real;

static void count_gather(struct comm *c, const void *own, int64_t n, void *all, const int64_t *cut,
                         size_t elem_bytes)
{
    traffic.n_calls++;
    traffic.sent += n * (int64_t)elem_bytes;
    if (c->rank == 0)
        traffic.received += (cut[c->size] - cut[0]) * (int64_t)elem_bytes;
    real->gather(c, own, n, all, cut, elem_bytes);
}

static void count_broadcast(struct comm *c, void *buf, size_t n_bytes, int root)
{
    traffic.n_calls++;
    *(c->rank == root ? &traffic.sent : &traffic.received) += (int64_t)n_bytes;
    real->broadcast(c, buf, n_bytes, root);
}

static void count_reduction(int n)
{
    traffic.n_calls++;
    traffic.sent += n * (int64_t)sizeof(int64_t);
    traffic.received += n * (int64_t)sizeof(int64_t);
}

static void count_sum(struct comm *c, int64_t *v, int n)
{
    count_reduction(n);
    real->sum_i64(c, v, n);
}

static void count_max(struct comm *c, int64_t *v, int n)
{
    count_reduction(n);
    real->max_i64(c, v, n);
}

static void count_barrier(struct comm *c)
{
    traffic.n_calls++;
    real->barrier(c);
}

static void count_all_gather(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    traffic.n_bulk++;
    real->all_gather(c, buf, cut, elem_bytes);
}

static void count_reduce_scatter(struct comm *c, float *buf, const int64_t *cut,
                                 int64_t slice_elems, enum dtype dtype, float *scratch)
{
    traffic.n_bulk++;
    real->reduce_scatter(c, buf, cut, slice_elems, dtype, scratch);
}

/* From now on c counts. */
static struct comm_ops count_begin(struct comm *c)
{
    struct comm_ops ops = *c->ops;
    real = c->ops;
    ops.gather = count_gather;
    ops.broadcast = count_broadcast;
    ops.sum_i64 = count_sum;
    ops.max_i64 = count_max;
    ops.barrier = count_barrier;
    ops.all_gather = count_all_gather;
    ops.reduce_scatter = count_reduce_scatter;
    traffic = (struct traffic){0};
    return ops;
}

/* Arrays of which every rank holds PART_ELEMS, so that a rank's part is the same in every world. */
static void save_parts(struct comm *c, const char *dir, enum ckpt_type type, struct traffic *out)
{
    static const char *const names[N_ARRAYS] = {"a", "b", "c"};
    static float values[PART_ELEMS];
    struct ckpt_array arrays[N_ARRAYS];
    struct ckpt_piece pieces[N_ARRAYS];
    for (int i = 0; i < N_ARRAYS; i++) {
        int64_t begin = (int64_t)c->rank * PART_ELEMS;
        arrays[i] = (struct ckpt_array){.group = "model",
                                        .name = names[i],
                                        .shape = shape_make(1, (int64_t)c->size * PART_ELEMS, 0),
                                        .dtype = DTYPE_F32,
                                        .layout = "plain"};
        pieces[i] = (struct ckpt_piece){.array = i,
                                        .begin = begin,
                                        .end = begin + PART_ELEMS,
                                        .values = values,
                                        .shard = type == CKPT_FULL ? 0 : c->rank};
    }
    const struct ckpt_save s = {.output_dir = dir,
                                .step = c->size,
                                .run_id = "traffic",
                                .type = type,
                                .n_shards = c->size,
                                .arrays = arrays,
                                .n_arrays = N_ARRAYS,
                                .pieces = pieces,
                                .n_pieces = N_ARRAYS,
                                .meta = "{}"};
    const struct comm_ops counting = count_begin(c);
    c->ops = &counting;
    train_must(ckpt_save(c, &s));
    c->ops = real;
    *out = traffic;
}

/* A small model under FULL_SHARD: the same one on every number of ranks. */
static void save_model(struct comm *c, const char *dir, enum ckpt_type type, struct traffic *out)
{
    char ini[1024];
    struct train_run t;
    snprintf(
        ini, sizeof ini,
        "[job]\nmax_steps = 1\noutput_dir = %s\n[model]\ntype = gpt2\nn_layer = 1\nn_head = 2\n"
        "n_embd = 32\nblock_size = 16\n"
        "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 1\n"
        "[strategy]\ndistributed_type = FSDP\n[plugin.f]\ntype = fsdp\n"
        "fsdp_sharding_strategy = FULL_SHARD\n",
        dir);
    train_open(&t, c, ini, NULL);
    const struct comm_ops counting = count_begin(c);
    c->ops = &counting;
    train_must(train_save(&t, type));
    c->ops = real;
    *out = traffic;
    train_close(&t);
}

typedef void save_fn(struct comm *c, const char *dir, enum ckpt_type type, struct traffic *out);

/* What rank 0 and the busiest of the others did in each world; the same on all ranks. */
struct worlds {
    struct traffic first[N_WORLDS], other[N_WORLDS];
};

static void save_in_worlds(struct comm *world, const char *dir, enum ckpt_type type, save_fn *save,
                           struct worlds *w)
{
    enum { WORDS = sizeof(struct traffic) / sizeof(int64_t) };
    for (int i = 0; i < N_WORLDS; i++) {
        char saves[400];
        struct traffic t = {0};
        int64_t v[2][WORDS] = {{0}};
        struct comm *c = comm_split(world, world->rank < world_sizes[i], world->rank);
        snprintf(saves, sizeof saves, "%s/%d-%d", dir, (int)type, world_sizes[i]);
        if (world->rank < world_sizes[i])
            save(c, saves, type, &t);
        comm_close(&c);
        memcpy(v[world->rank > 0], &t, sizeof t);
        world->ops->max_i64(world, &v[0][0], 2 * WORDS);
        memcpy(&w->first[i], v[0], sizeof t);
        memcpy(&w->other[i], v[1], sizeof t);
        if (world->rank == 0)
            printf("# %s on %d ranks: %lld operations; bytes sent by rank 0 %lld, by another "
                   "%lld; received by rank 0 %lld, by another %lld\n",
                   ckpt_type_words[type], world_sizes[i], (long long)w->first[i].n_calls,
                   (long long)w->first[i].sent, (long long)w->other[i].sent,
                   (long long)w->first[i].received, (long long)w->other[i].received);
    }
}

static void check_calls(const struct worlds *w)
{
    CHECK(w->first[0].n_calls > 0 && w->first[0].sent > 0);
    for (int i = 0; i < N_WORLDS; i++) {
        CHECK(w->first[i].n_calls == w->first[0].n_calls);
        CHECK(w->other[i].n_calls == w->first[0].n_calls);
        CHECK(w->first[i].n_bulk == 0 && w->other[i].n_bulk == 0);
        CHECK(w->other[i].received == w->other[0].received);
    }
}

int main(void)
{
    static const enum ckpt_type types[] = {CKPT_FULL, CKPT_SHARDED};
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    char folder[200], dir[300];
    train_folder(c, folder, sizeof folder);
    for (int k = 0; k < 2; k++) {
        struct worlds w;
        TEST ("as much a rank to save: every rank sends the same on 2, 8 and 32 ranks") {
            snprintf(dir, sizeof dir, "%s/parts", folder);
            save_in_worlds(c, dir, types[k], save_parts, &w);
            check_calls(&w);
            for (int i = 0; i < N_WORLDS; i++) {
                CHECK(w.first[i].sent == w.first[0].sent);
                CHECK(w.other[i].sent == w.other[0].sent);
            }
        }
        TEST ("the same model to save: no rank sends more where there are more of them") {
            snprintf(dir, sizeof dir, "%s/model", folder);
            save_in_worlds(c, dir, types[k], save_model, &w);
            check_calls(&w);
            for (int i = 1; i < N_WORLDS; i++) {
                CHECK(w.first[i].sent <= w.first[0].sent);
                CHECK(w.other[i].sent <= w.other[0].sent);
            }
        }
    }
    if (c->rank == 0)
        file_remove_tree(folder);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
