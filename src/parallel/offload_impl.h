/* Private to offload*.c: the queue of transfers between a file and its buffers, and the ways to do
 * them. */
#pragma once
#include "parallel/offload.h"
#include <pthread.h>

enum { OFFLOAD_BUFFERS = 2, OFFLOAD_JOBS = 2 * OFFLOAD_BUFFERS };

/* A tile's transfer: a piece of each array. */
struct offload_job {
    bool write, done;
    int buffer, n_pieces;
    struct {
        void *bytes;
        size_t n_bytes;
        int64_t at;
    } piece[OFFLOAD_ARRAYS_MAX];
};

/* Jobs that use the same buffer are done one after another, in their order. */
struct offload_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct offload_job job[OFFLOAD_JOBS]; /* a ring; a job stays as it is until it is done */
    int64_t n_put, n_done;                /* jobs so far; all below n_done are done */
    bool quit;
    int rc; /* of the disk, since the file was made */
    char text[ERR_TEXT_BYTES];
};

/* Job number is done.  Local. */
void offload_queue_done(struct offload_queue *q, int64_t number);
/* The disk did what err_text() says; the first time counts.  Local. */
void offload_queue_fail(struct offload_queue *q, int rc);

/* A way to do the jobs, on a thread of its own that has all signals blocked. */
struct offload_io_ops {
    const char *name; /* the word of aio.io_method */
    /* file: open, of its full length.  bytes, aligned to OFFLOAD_ALIGN: to try a read with.
     * ERR_RESOURCE says why this machine cannot. */
    int (*open)(const struct offload_conf *c, int file, void *bytes, void **out);
    void (*close)(void *io);
    /* The thread: until q->quit, with all jobs done. */
    void (*work)(void *io, struct offload_queue *q);
    void (*wake)(void *io); /* something was put, or quit was set; NULL: q->changed says enough */
    bool (*direct)(const void *io); /* wants whole multiples of OFFLOAD_ALIGN */
    void (*describe)(const void *io, struct text *out);
};

extern const struct offload_io_ops offload_thread_ops;    /* offload_thread.c */
extern const struct offload_io_ops offload_uring_ops;     /* offload_uring.c */
extern const struct offload_io_ops *const offload_list[]; /* offload_list.c: best first */
