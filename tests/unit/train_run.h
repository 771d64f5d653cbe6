/* A run from a job's text on a communicator of the test's own, as cli/train.c makes it. */
#pragma once
#include "base/bits.h"
#include "base/file.h"
#include "base/hash.h"
#include "check.h"
#include "train/save.h"

#include <stdlib.h>

struct train_run {
    struct arena *arena;
    struct run run;
    struct device *dev;
    struct engine *engine;
};

/* Stops the test program on an error: the text is what a user would see. */
static inline void train_must(int rc)
{
    if (rc == ERR_OK)
        return;
    printf("Bail out! status %d: %s\n", rc, err_text());
    fflush(stdout);
    FATAL("%s", err_text());
}

/* Everything up to the memory; the status of run_setup(). */
static inline int train_setup(struct comm *c, const char *ini, struct ckpt *from, struct arena *a,
                              struct run *run)
{
    struct job *j;
    const struct section_kind *const *kinds = run_kinds(a);
    train_must(job_parse("test.ini", ini, strlen(ini), 0, NULL, kinds, a, &j));
    train_must(job_check(j, kinds));
    return run_setup(j, c, RUN_TRAIN, 0, from, a, run);
}

/* The run without its memory; train_start() follows. */
static inline void train_set_up(struct train_run *t, struct comm *c, const char *ini,
                                struct ckpt *from)
{
    *t = (struct train_run){.arena = arena_create()};
    train_must(train_setup(c, ini, from, t->arena, &t->run));
}

static inline void train_start(struct train_run *t)
{
    struct comm *c = t->run.comm;
    int64_t isa = -device_isa_best();
    c->ops->max_i64(c, &isa, 1);
    train_must(device_open_cpu(1, (int)-isa, NULL, &t->dev));
    train_must(engine_create(&t->run, t->dev, &t->engine));
}

static inline void train_open(struct train_run *t, struct comm *c, const char *ini,
                              struct ckpt *from)
{
    train_set_up(t, c, ini, from);
    train_start(t);
}

static inline void train_close(struct train_run *t)
{
    engine_destroy(&t->engine);
    device_close(&t->dev);
    run_clear(&t->run);
    arena_destroy(&t->arena);
}

/* A step up to its summed gradient. */
static inline void train_window(struct train_run *t, struct window *w)
{
    engine_draw(t->engine, w);
    for (int64_t i = 0; i < w->n_micro; i++) {
        engine_forward(t->engine, w, i);
        engine_backward(t->engine, w, i);
    }
}

/* One step as the loop takes it. */
static inline struct step_report train_step(struct train_run *t)
{
    struct window w;
    struct step_report s;
    train_window(t, &w);
    train_must(engine_step(t->engine, &w, &s));
    return s;
}

/* Save the engine's state into the job's output_dir and wait. */
static inline int train_save(struct train_run *t, enum ckpt_type type)
{
    struct save_request q = {.job_text = "", .run_id = "test-run", .type = type, .best_loss = NAN};
    return save_checkpoint(t->engine, &q, NULL);
}

/* The newest checkpoint of a run's folder, on every rank. */
static inline struct ckpt *train_newest(struct comm *c, const char *folder, struct arena *a)
{
    const char *dir;
    struct ckpt *k;
    c->ops->barrier(c);
    train_must(ckpt_find(folder, a, &dir));
    REQUIRE(dir);
    train_must(ckpt_open(dir, &k));
    return k;
}

/* A folder of this test alone, made by rank 0 of c; the same name on all ranks. */
static inline void train_folder(struct comm *c, char *path, size_t cap)
{
    snprintf(path, cap, "%s/stretto-test-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (c->rank == 0 && !mkdtemp(path))
        FATAL("no folder for the test");
    c->ops->broadcast(c, path, cap, 0);
}

/* The beginning of the book as FOLDER/book.txt, written by rank 0; there on all ranks. */
static inline void train_book(struct comm *c, const char *folder, size_t n_bytes)
{
    char path[300], *book;
    size_t n;
    train_must(file_read("jobs/data/pride_and_prejudice.txt", 1 << 30, ERR_DATA, &book, &n));
    snprintf(path, sizeof path, "%s/book.txt", folder);
    if (c->rank == 0)
        train_must(file_write(path, book, n_bytes));
    free(book);
    c->ops->barrier(c);
}

/* The end of a test program: its folder goes, and the world. */
static inline int train_end(struct comm **c, const char *folder)
{
    (*c)->ops->barrier(*c);
    if ((*c)->rank == 0)
        file_remove_tree(folder);
    int rc = check_done();
    comm_close(c);
    return rc;
}

/* A hash of each tensor's whole array, from the parts of its owners; the same on all ranks. */
static inline uint64_t train_hash(struct train_run *t, int array)
{
    const struct shard *s = t->engine->shard;
    struct comm *c = t->run.comm;
    uint64_t h = 0;
    for (int r = 0; r < s->plan->n_rows; r++) {
        int64_t n = shape_elems(&s->model->table.rows[r].shape);
        int64_t *bits = calloc((size_t)n, sizeof *bits);
        struct shard_part p = shard_own_part(s, array, r);
        bool speaks = !t->engine->replicas || t->engine->replicas->rank == 0;
        for (int64_t i = p.begin; speaks && i < p.end; i++)
            bits[i] = f32_bits(p.values[i - p.begin]);
        c->ops->sum_i64(c, bits, (int)n);
        h = hash64(bits, (size_t)n * sizeof *bits, h);
        free(bits);
    }
    return h;
}

/* A hash of what this rank holds of an array, and whether it is the same on all of them. */
static inline uint64_t train_hash_held(const struct train_run *t, int array)
{
    uint64_t h = 0;
    for (int r = 0; r < t->run.plan->n_rows; r++) {
        struct shard_part p = shard_held_part(t->engine->shard, array, r);
        h = hash64(p.values, (size_t)(p.end - p.begin) * sizeof(float), h);
    }
    return h;
}

static inline bool train_same_on_all(const struct train_run *t, int array)
{
    int64_t h = (int64_t)(train_hash_held(t, array) >> 1), most[2] = {h, -h};
    t->run.comm->ops->max_i64(t->run.comm, most, 2);
    return most[0] == -most[1];
}

/* The job that would go on from the checkpoint dir (NULL: none) is refused, as its keys are, in
 * words that have want in them. */
static inline void train_refused_from(struct comm *c, const char *dir, const char *ini,
                                      const char *want)
{
    struct arena *a = arena_create();
    struct run run;
    struct ckpt *k = NULL;
    if (dir)
        train_must(ckpt_open(dir, &k));
    int rc = train_setup(c, ini, k, a, &run);
    check_that(rc == ERR_USAGE && strstr(err_text(), want), __FILE__, __LINE__,
               "status %d, \"%s\", not \"%s\"", rc, err_text(), want);
    run_clear(&run);
    arena_destroy(&a);
}

static inline void train_refused(struct comm *c, const char *ini, const char *want)
{
    train_refused_from(c, NULL, ini, want);
}
