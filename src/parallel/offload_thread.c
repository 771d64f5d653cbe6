/* Transfers by pread and pwrite, through the page cache, one after another: on any kernel. */
#include "parallel/offload_impl.h"

#include "base/file.h"
#include "base/text.h"
#include <stdlib.h>

struct thread_io {
    int file;
    const char *dir; /* borrowed */
};

static int thread_open(const struct offload_conf *c, int file, void *bytes, void **out)
{
    (void)bytes;
    struct thread_io *t = malloc(sizeof *t);
    if (!t)
        FAIL(ERR_RESOURCE, "out of memory for input and output");
    *t = (struct thread_io){file, c->dir};
    *out = t;
    return ERR_OK;
}

static void thread_close(void *io)
{
    free(io);
}

static int transfer(const struct thread_io *t, const struct offload_job *j)
{
    for (int i = 0; i < j->n_pieces; i++) {
        void *bytes = j->piece[i].bytes;
        size_t n_bytes = j->piece[i].n_bytes;
        int64_t at = j->piece[i].at;
        if (!j->write) {
            TRY(file_pread_fd(t->file, t->dir, bytes, n_bytes, at));
            continue;
        }
        TRY(file_pwrite_fd(t->file, t->dir, bytes, n_bytes, at));
        /* begin to clean the page cache now, so that it can be let go of later */
        file_write_early(t->file, at, n_bytes);
    }
    return ERR_OK;
}

static void thread_work(void *io, struct offload_queue *q)
{
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->n_done == q->n_put && !q->quit)
            pthread_cond_wait(&q->changed, &q->lock);
        if (q->n_done == q->n_put)
            break;
        int64_t number = q->n_done;
        pthread_mutex_unlock(&q->lock);
        int rc = transfer(io, &q->job[number % OFFLOAD_JOBS]);
        if (rc != ERR_OK)
            offload_queue_fail(q, rc);
        offload_queue_done(q, number);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
}

static bool thread_direct(const void *io)
{
    (void)io;
    return false;
}

static void thread_describe(const void *io, struct text *out)
{
    (void)io;
    text_printf(out, "a thread, through the page cache");
}

const struct offload_io_ops offload_thread_ops = {
    .name = "thread",
    .open = thread_open,
    .close = thread_close,
    .work = thread_work,
    .direct = thread_direct,
    .describe = thread_describe,
};
