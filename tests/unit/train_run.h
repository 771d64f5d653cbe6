/* A run from a job's text on a communicator of the test's own, as cli/train.c makes it. */
#pragma once
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

static inline void train_open(struct train_run *t, struct comm *c, const char *ini,
                              struct ckpt *from)
{
    struct job *j;
    *t = (struct train_run){.arena = arena_create()};
    const struct section_kind *const *kinds = run_kinds(t->arena);
    train_must(job_parse("test.ini", ini, strlen(ini), 0, NULL, kinds, t->arena, &j));
    train_must(job_check(j, kinds));
    train_must(run_setup(j, c, RUN_TRAIN, 0, from, t->arena, &t->run));
    int64_t isa = -device_isa_best();
    c->ops->max_i64(c, &isa, 1);
    train_must(device_open_cpu(1, (int)-isa, NULL, &t->dev));
    train_must(engine_create(&t->run, t->dev, &t->engine));
}

static inline void train_close(struct train_run *t)
{
    engine_destroy(&t->engine);
    device_close(&t->dev);
    run_clear(&t->run);
    arena_destroy(&t->arena);
}

/* One step as the loop takes it. */
static inline struct step_report train_step(struct train_run *t)
{
    struct window w;
    struct step_report s;
    engine_draw(t->engine, &w);
    for (int64_t i = 0; i < w.n_micro; i++) {
        engine_forward(t->engine, &w, i);
        engine_backward(t->engine, &w, i);
    }
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
