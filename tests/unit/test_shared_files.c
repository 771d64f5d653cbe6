/* Sharded checkpoints with a file for several neighbours: the arrays of one with a file a rank,
 * written at once or behind the training; other ranks go on from it.
 * RUN: -n 4 */
#include "train_run.h"

#include "base/file.h"
#include <sys/resource.h>

static const struct {
    const char *name, *keys;
    int n_writers; /* ranks of the first copy of the model */
} ways[] = {
    {"FULL_SHARD", "[strategy]\ndistributed_type = FSDP\n", 4},
    {"HYBRID_SHARD",
     "[strategy]\ndistributed_type = FSDP\n[plugin]\ntype = fsdp\n"
     "fsdp_sharding_strategy = HYBRID_SHARD\ndp_shard_size = 2\n",
     2},
    {"PowerSGD",
     "[strategy]\ndistributed_type = MULTI_CPU\ncomm_hook = power_sgd\n"
     "comm_state_option.start_powersgd_iter = 0\n",
     4},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void print_job(char *ini, size_t cap, const char *saves, int way)
{
    snprintf(ini, cap,
             "[job]\nmax_steps = 10\noutput_dir = %s\n[model]\ntype = gpt2\nn_layer = 2\n"
             "n_head = 2\nn_embd = 32\nblock_size = 16\n"
             "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 1\n%s",
             saves, ways[way].keys);
}

/* Save with file_ranks ranks to a file, into a folder of its own; opened again on every rank. */
static struct ckpt *save(struct train_run *t, const char *folder, int file_ranks, bool behind)
{
    char dir[300];
    struct ckpt *k;
    struct ckpt_background *b = NULL;
    struct arena *a = arena_create();
    struct comm *c = t->run.comm;
    int64_t step = 0;
    int nice_before = getpriority(PRIO_PROCESS, 0);
    snprintf(dir, sizeof dir, "%s/%d%s", folder, file_ranks, behind ? "b" : "");
    t->run.conf.main.output_dir = dir;
    struct save_request q = {.job_text = "",
                             .run_id = "test-run",
                             .type = CKPT_SHARDED,
                             .file_ranks = file_ranks,
                             .best_loss = NAN};
    if (behind)
        train_must(ckpt_background_create(c, (size_t)save_bytes(t->engine), 1,
                                          save_gather(t->engine), &b));
    train_must(save_checkpoint(t->engine, &q, b));
    if (behind) {
        train_must(ckpt_background_poll(b, true, &step));
        CHECK(step == t->engine->step);
        CHECK(getpriority(PRIO_PROCESS, 0) == nice_before);
    }
    ckpt_background_destroy(&b);
    k = train_newest(c, dir, a);
    arena_destroy(&a);
    return k;
}

static void check_equal(const struct ckpt *x, const struct ckpt *y, const char *way)
{
    CHECK(ckpt_n_arrays(x) == ckpt_n_arrays(y));
    for (int i = 0; i < ckpt_n_arrays(x); i++) {
        const struct ckpt_array *a = ckpt_array_at(x, i);
        int64_t n = shape_elems(&a->shape);
        float *v = malloc(2 * (size_t)n * sizeof *v);
        train_must(ckpt_read(x, i, 0, n, v));
        train_must(ckpt_read(y, ckpt_array_find(y, a->group, a->name), 0, n, v + n));
        check_that(memcmp(v, v + n, (size_t)n * sizeof *v) == 0, __FILE__, __LINE__,
                   "%s: %s/%s differs", way, a->group, a->name);
        free(v);
    }
}

static void test_way(struct comm *c, const char *folder, int way)
{
    char ini[2048], dir[300];
    struct train_run t, again;
    snprintf(dir, sizeof dir, "%s/%d", folder, way);
    print_job(ini, sizeof ini, dir, way);
    train_open(&t, c, ini, NULL);
    train_step(&t);
    engine_settle(t.engine);
    struct ckpt *own = save(&t, dir, 1, false);
    CHECK(ckpt_n_files(own) == ways[way].n_writers);
    for (int n = 2; n <= 4; n++) {
        struct ckpt *shared = save(&t, dir, n, n == 3);
        CHECK(ckpt_n_files(shared) == (ways[way].n_writers + n - 1) / n);
        check_equal(own, shared, ways[way].name);
        if (n == 2) { /* taken over by the run that goes on from it */
            train_open(&again, c, ini, shared);
            train_close(&again);
        } else {
            ckpt_close(&shared);
        }
    }
    ckpt_close(&own);
    train_close(&t);
}

int main(void)
{
    struct comm *c;
    char folder[200];
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    train_folder(c, folder, sizeof folder);
    TEST ("2, 3 or 4 neighbours share a file: the same arrays, under any strategy") {
        for (int way = 0; way < N_WAYS; way++)
            test_way(c, folder, way);
    }
    return train_end(&c, folder);
}
