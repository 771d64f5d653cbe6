/* One thread at a time, for one phase of one save. */
#include "ckpt/background.h"

#include "ckpt/ckpt_impl.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    struct saving *saving; /* owned */
    struct arena *arena;   /* owned */
    int snapshot;
    int64_t step;
};

struct ckpt_background {
    struct comm *c; /* borrowed */
    size_t n_bytes;
    int n_snapshots;
    struct ckpt_gather gather;
    char *snapshot[CKPT_MOST_SNAPSHOTS];     /* owned */
    struct entry queue[CKPT_MOST_SNAPSHOTS]; /* in order; the first is under way */
    int n_queue;
    pthread_t thread;
    bool has_thread;
    atomic_bool finished; /* of the phase under way; then the next two may be read */
    int rc;
    char text[ERR_TEXT_BYTES];
};

int ckpt_background_create(struct comm *c, size_t n_bytes, int n_snapshots,
                           struct ckpt_gather gather, struct ckpt_background **out)
{
    REQUIRE(n_snapshots >= 1 && n_snapshots <= CKPT_MOST_SNAPSHOTS);
    struct ckpt_background *b = calloc(1, sizeof *b);
    if (!b)
        FATAL("out of memory");
    b->c = c;
    b->n_bytes = n_bytes;
    b->n_snapshots = n_snapshots;
    b->gather = gather;
    *out = b;
    for (int i = 0; i < n_snapshots; i++) {
        b->snapshot[i] = malloc(n_bytes + 1);
        if (!b->snapshot[i]) {
            ckpt_background_destroy(out);
            FAIL(ERR_RESOURCE, "no memory for a snapshot of %zu bytes", n_bytes);
        }
    }
    return ERR_OK;
}

static void *run(void *self)
{
    struct ckpt_background *b = self;
    b->rc = saving_work(b->queue[0].saving);
    snprintf(b->text, sizeof b->text, "%s", err_text());
    atomic_store(&b->finished, true);
    return NULL;
}

/* Steps come first: where nothing is idle, a save takes longer instead, at some 10 % of a core. */
static void *run_behind(void *self)
{
    (void)!nice(10); /* on Linux of this thread alone */
    return run(self);
}

/* Begin the phase that the first save is in.  Signals are for the thread that trains. */
static void start(struct ckpt_background *b)
{
    sigset_t all, before;
    atomic_store(&b->finished, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    b->has_thread = pthread_create(&b->thread, NULL, run_behind, b) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!b->has_thread) /* then at once: slower, but right */
        run(b);
}

static void join(struct ckpt_background *b)
{
    if (b->has_thread)
        pthread_join(b->thread, NULL);
    b->has_thread = false;
}

static void pop(struct ckpt_background *b)
{
    saving_destroy(&b->queue[0].saving);
    arena_destroy(&b->queue[0].arena);
    b->n_queue--;
    memmove(b->queue, b->queue + 1, (size_t)b->n_queue * sizeof *b->queue);
}

void ckpt_background_destroy(struct ckpt_background **background)
{
    struct ckpt_background *b = *background;
    if (!b)
        return;
    if (b->n_queue > 0)
        saving_cancel(b->queue[0].saving);
    join(b);
    while (b->n_queue > 0)
        pop(b);
    for (int i = 0; i < b->n_snapshots; i++)
        free(b->snapshot[i]);
    free(b);
    *background = NULL;
}

bool ckpt_background_is_free(const struct ckpt_background *b)
{
    return b->n_queue < b->n_snapshots;
}

static int free_snapshot(const struct ckpt_background *b)
{
    int i = 0;
    while (b->n_queue > 0 && b->queue[0].snapshot == i)
        i++;
    return i;
}

/* Values one behind another; pieces that point at the copies. */
static struct ckpt_piece *copy_values(struct ckpt_background *b, const struct ckpt_save *s,
                                      struct arena *a, char *to)
{
    struct ckpt_piece *pieces = arena_alloc(a, ((size_t)s->n_pieces + 1) * sizeof *pieces);
    struct memory_span *span = arena_alloc(a, ((size_t)s->n_pieces + 1) * sizeof *span);
    size_t at = 0;
    for (int i = 0; i < s->n_pieces; i++) {
        pieces[i] = s->pieces[i];
        size_t n = (size_t)(pieces[i].end - pieces[i].begin) *
                   dtype_bytes(s->arrays[pieces[i].array].dtype);
        REQUIRE(at + n <= b->n_bytes && pieces[i].values);
        span[i] = (struct memory_span){pieces[i].values, n};
        pieces[i].values = to + at;
        at += n;
    }
    b->gather.run(b->gather.self, to, span, s->n_pieces);
    return pieces;
}

int ckpt_background_save(struct ckpt_background *b, const struct ckpt_save *s,
                         struct arena *take_arena)
{
    REQUIRE(ckpt_background_is_free(b));
    struct entry *e = &b->queue[b->n_queue];
    struct ckpt_save copy = *s;
    *e = (struct entry){.arena = take_arena, .snapshot = free_snapshot(b), .step = s->step};
    copy.past_cache = true;
    copy.pieces = copy_values(b, s, take_arena, b->snapshot[e->snapshot]);
    int rc = saving_create(b->c, &copy, &e->saving);
    if (rc != ERR_OK) {
        arena_destroy(&e->arena);
        return rc;
    }
    if (b->n_queue++ == 0)
        start(b);
    return ERR_OK;
}

int ckpt_background_poll(struct ckpt_background *b, bool wait, int64_t *step)
{
    *step = -1;
    while (b->n_queue > 0) {
        int64_t is_busy = !wait && !atomic_load(&b->finished);
        if (!wait)
            b->c->ops->max_i64(b->c, &is_busy, 1);
        if (is_busy)
            return ERR_OK;
        join(b);
        if (b->rc != ERR_OK)
            err_set(b->rc, "%s", b->text);
        bool done;
        int rc = saving_advance(b->queue[0].saving, b->rc, &done);
        if (!done) {
            start(b);
            continue;
        }
        *step = b->queue[0].step;
        pop(b);
        if (b->n_queue > 0)
            start(b);
        return rc;
    }
    return ERR_OK;
}
