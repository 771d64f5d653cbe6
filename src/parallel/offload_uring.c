/* Transfers by io_uring: many blocks at once, past the page cache where the file system lets us
 * (O_DIRECT), so that nothing is copied and no memory fills with what is read once a step.  A read
 * may run beside the write of the other buffer. */
#ifdef HAVE_URING
#include "parallel/offload_impl.h"

#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A block that the kernel has in hand, or what is left of it. */
struct block {
    int64_t job;
    char *bytes;
    size_t n_bytes;
    int64_t at;
};

struct uring {
    struct io_uring ring;
    int file;  /* owned if direct: the same file, opened once more */
    int event; /* owned: written to when something was put */
    const char *dir;
    bool direct, single_submit, overlap_events;
    int depth;
    size_t block_bytes;
    struct block *block; /* (depth) */
    int *idle;           /* (n_idle) blocks that are not in use */
    int n_idle;
    int64_t job; /* the next block to begin is of this job, this piece, from this byte on */
    int piece;
    size_t byte;
    int64_t left[OFFLOAD_JOBS]; /* bytes of a job that are not done */
};

static struct io_uring_sqe *next_entry(struct uring *u)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&u->ring);
    REQUIRE(e); /* there is one for each block, and one for the event */
    return e;
}

static void hear(struct uring *u)
{
    struct io_uring_sqe *e = next_entry(u);
    io_uring_prep_poll_add(e, u->event, POLLIN);
    io_uring_sqe_set_data(e, NULL);
}

static void submit(struct uring *u, unsigned n_wait)
{
    int rc;
    do
        rc = io_uring_submit_and_wait(&u->ring, n_wait);
    while (rc == -EINTR || rc == -EAGAIN);
    if (rc < 0)
        FATAL("io_uring: %s", strerror(-rc));
}

static void begin_block(struct uring *u, struct block *b, bool write)
{
    struct io_uring_sqe *e = next_entry(u);
    if (write)
        io_uring_prep_write(e, u->file, b->bytes, (unsigned)b->n_bytes, 0);
    else
        io_uring_prep_read(e, u->file, b->bytes, (unsigned)b->n_bytes, 0);
    e->off = (uint64_t)b->at; /* the functions' type differs between versions of liburing */
    io_uring_sqe_set_data(e, b);
    if (u->single_submit)
        submit(u, 0);
}

/* An earlier job has the buffer of this one. */
static bool must_wait(const struct uring *u, const struct offload_queue *q)
{
    const struct offload_job *mine = &q->job[u->job % OFFLOAD_JOBS];
    for (int64_t k = u->job >= OFFLOAD_JOBS ? u->job - OFFLOAD_JOBS + 1 : 0; k < u->job; k++)
        if (u->left[k % OFFLOAD_JOBS] > 0 && q->job[k % OFFLOAD_JOBS].buffer == mine->buffer)
            return true;
    return false;
}

/* Begin as many blocks of the jobs before n_put as may be in hand. */
static void begin_blocks(struct uring *u, const struct offload_queue *q, int64_t n_put)
{
    if (!u->overlap_events && u->n_idle < u->depth)
        return;
    while (u->job < n_put && u->n_idle > 0) {
        const struct offload_job *j = &q->job[u->job % OFFLOAD_JOBS];
        int64_t *left = &u->left[u->job % OFFLOAD_JOBS];
        if (u->piece == 0 && u->byte == 0) {
            if (must_wait(u, q))
                return;
            *left = 0;
            for (int i = 0; i < j->n_pieces; i++)
                *left += (int64_t)j->piece[i].n_bytes;
        }
        size_t rest = j->piece[u->piece].n_bytes - u->byte;
        struct block *b = &u->block[u->idle[--u->n_idle]];
        *b = (struct block){.job = u->job,
                            .bytes = (char *)j->piece[u->piece].bytes + u->byte,
                            .n_bytes = rest < u->block_bytes ? rest : u->block_bytes,
                            .at = j->piece[u->piece].at + (int64_t)u->byte};
        u->byte += b->n_bytes;
        if (u->byte == j->piece[u->piece].n_bytes) {
            u->byte = 0;
            u->piece = (u->piece + 1) % j->n_pieces;
            u->job += u->piece == 0;
        }
        begin_block(u, b, j->write);
    }
}

/* What a block's end means: ERR_OK and n_bytes done, which may be less than all. */
static int judge(const struct uring *u, const struct block *b, bool write, int res, size_t *n_bytes)
{
    *n_bytes = 0;
    if (res == -EINTR || res == -EAGAIN)
        return ERR_OK;
    if (res < 0 && write)
        FAIL(ERR_RESOURCE, "cannot write %s: %s", u->dir, strerror(-res));
    if (res < 0)
        FAIL(ERR_DATA, "cannot read %s: %s", u->dir, strerror(-res));
    *n_bytes = (size_t)res;
    if (u->direct && *n_bytes < b->n_bytes) /* the rest begins where such a transfer can */
        *n_bytes = *n_bytes / OFFLOAD_ALIGN * OFFLOAD_ALIGN;
    if (*n_bytes > 0)
        return ERR_OK;
    if (write)
        FAIL(ERR_RESOURCE, "cannot write %s: nothing was taken", u->dir);
    FAIL(ERR_DATA, "%s is truncated: it ends at byte %jd", u->dir, (intmax_t)(b->at + res));
}

static void end_job(const struct uring *u, struct offload_queue *q, int64_t number)
{
    const struct offload_job *j = &q->job[number % OFFLOAD_JOBS];
    for (int i = 0; i < j->n_pieces && j->write && !u->direct; i++)
        file_write_early(u->file, j->piece[i].at, j->piece[i].n_bytes);
    offload_queue_done(q, number);
}

static void end_block(struct uring *u, struct offload_queue *q, struct block *b, int res)
{
    size_t n_bytes;
    int64_t number = b->job;
    bool write = q->job[number % OFFLOAD_JOBS].write;
    int rc = judge(u, b, write, res, &n_bytes);
    if (rc != ERR_OK) {
        offload_queue_fail(q, rc);
        n_bytes = b->n_bytes; /* nobody asks for it again */
    }
    u->left[number % OFFLOAD_JOBS] -= (int64_t)n_bytes;
    b->bytes += n_bytes;
    b->at += (int64_t)n_bytes;
    b->n_bytes -= n_bytes;
    if (b->n_bytes > 0) {
        begin_block(u, b, write);
        return;
    }
    u->idle[u->n_idle++] = (int)(b - u->block);
    if (u->left[number % OFFLOAD_JOBS] == 0)
        end_job(u, q, number);
}

static void end_blocks(struct uring *u, struct offload_queue *q)
{
    struct io_uring_cqe *c;
    while (io_uring_peek_cqe(&u->ring, &c) == 0) {
        struct block *b = io_uring_cqe_get_data(c);
        int res = c->res;
        io_uring_cqe_seen(&u->ring, c);
        if (b) {
            end_block(u, q, b, res);
            continue;
        }
        eventfd_t n;
        (void)eventfd_read(u->event, &n);
        hear(u);
    }
}

static void uring_work(void *io, struct offload_queue *q)
{
    struct uring *u = io;
    hear(u);
    for (;;) {
        pthread_mutex_lock(&q->lock);
        int64_t n_put = q->n_put;
        bool over = q->quit && q->n_done == n_put;
        pthread_mutex_unlock(&q->lock);
        if (over)
            break;
        begin_blocks(u, q, n_put);
        submit(u, 1);
        end_blocks(u, q);
    }
}

static void uring_wake(void *io)
{
    const struct uring *u = io;
    (void)eventfd_write(u->event, 1);
}

static void uring_close(void *io)
{
    struct uring *u = io;
    if (u->ring.ring_fd >= 0)
        io_uring_queue_exit(&u->ring);
    if (u->event >= 0)
        close(u->event);
    if (u->direct)
        close(u->file);
    free(u->block);
    free(u->idle);
    free(u);
}

/* Kernels before 5.6 have a ring, but not these. */
static bool can_transfer(struct uring *u)
{
    static const int ops[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_POLL_ADD};
    struct io_uring_probe *p = io_uring_get_probe_ring(&u->ring);
    bool can = p != NULL;
    for (size_t i = 0; can && i < sizeof ops / sizeof *ops; i++)
        can = io_uring_opcode_supported(p, ops[i]);
    if (p)
        io_uring_free_probe(p);
    return can;
}

/* The same file without the page cache, if its file system has such a thing for our alignment. */
static void open_direct(struct uring *u, const struct offload_conf *c, void *bytes)
{
    char path[64];
    if (c->tile_elems * (int64_t)sizeof(float) % OFFLOAD_ALIGN != 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", u->file);
    int file = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (file < 0)
        return;
    if (pread(file, bytes, OFFLOAD_ALIGN, 0) != OFFLOAD_ALIGN) {
        close(file);
        return;
    }
    u->file = file;
    u->direct = true;
}

static int build(struct uring *u, const struct offload_conf *c, void *bytes)
{
    REQUIRE(u->depth >= 1 && u->block_bytes >= OFFLOAD_ALIGN);
    u->block = calloc((size_t)u->depth, sizeof *u->block);
    u->idle = calloc((size_t)u->depth, sizeof *u->idle);
    if (!u->block || !u->idle)
        FAIL(ERR_RESOURCE, "out of memory for input and output");
    for (u->n_idle = 0; u->n_idle < u->depth; u->n_idle++)
        u->idle[u->n_idle] = u->n_idle;
    int rc = io_uring_queue_init((unsigned)u->depth + 1, &u->ring, 0);
    if (rc < 0) {
        u->ring.ring_fd = -1;
        FAIL(ERR_RESOURCE, "io_uring: %s", strerror(-rc));
    }
    if (!can_transfer(u))
        FAIL(ERR_RESOURCE, "io_uring: this kernel's cannot read and write");
    io_uring_ring_dontfork(&u->ring); /* readers of foreign files are children */
    u->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (u->event < 0)
        FAIL(ERR_RESOURCE, "io_uring: no event: %s", strerror(errno));
    open_direct(u, c, bytes);
    return ERR_OK;
}

static int uring_open(const struct offload_conf *c, int file, void *bytes, void **out)
{
    struct uring *u = calloc(1, sizeof *u);
    if (!u)
        FAIL(ERR_RESOURCE, "out of memory for input and output");
    u->ring.ring_fd = u->event = -1;
    u->file = file;
    u->dir = c->dir;
    u->depth = c->queue_depth;
    u->block_bytes = (size_t)c->block_bytes;
    u->single_submit = c->single_submit;
    u->overlap_events = c->overlap_events;
    int rc = build(u, c, bytes);
    if (rc != ERR_OK) {
        uring_close(u);
        return rc;
    }
    *out = u;
    return ERR_OK;
}

static bool uring_direct(const void *io)
{
    return ((const struct uring *)io)->direct;
}

static void uring_describe(const void *io, struct text *out)
{
    const struct uring *u = io;
    char block[32];
    text_printf(out, "io_uring, %s the page cache, %d block%s of %s at once%s",
                u->direct ? "past" : "through", u->depth, u->depth == 1 ? "" : "s",
                text_bytes(block, (double)u->block_bytes),
                u->overlap_events ? "" : ", the next ones when all are done");
}

const struct offload_io_ops offload_uring_ops = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .work = uring_work,
    .wake = uring_wake,
    .direct = uring_direct,
    .describe = uring_describe,
};
#endif
