/* A file, its mapping, two buffers and one thread that works through a queue (offload_impl.h): with
 * the write of tile i - 1 in front of the read of tile i + 1, which takes the same buffer, nobody
 * has to wait for more than what is needed next. */
#include "parallel/offload_impl.h"

#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

const char *const offload_methods[] = {"auto", "io_uring", "thread", NULL};

struct offload {
    struct offload_conf conf;
    int fd, n_arrays;
    int64_t at[OFFLOAD_ARRAYS_MAX + 1]; /* bytes where each array begins */
    char *map;
    float *buffer; /* (OFFLOAD_BUFFERS, n_arrays, tile_elems) */
    const struct offload_io_ops *ops;
    void *io;
    bool direct;
    char refused[ERR_TEXT_BYTES]; /* why ops is not a better one; empty: it is the best */
    pthread_t thread;
    bool has_thread;
    struct offload_queue queue;
};

int64_t offload_buffer_elems(const struct offload_conf *conf, int n_arrays)
{
    return conf->dir ? (int64_t)OFFLOAD_BUFFERS * n_arrays * conf->tile_elems : 0;
}

static float *buffer_of(const struct offload *o, int buffer, int array)
{
    return o->buffer + ((int64_t)buffer * o->n_arrays + array) * o->conf.tile_elems;
}

void offload_queue_fail(struct offload_queue *q, int rc)
{
    pthread_mutex_lock(&q->lock);
    if (q->rc == ERR_OK) {
        q->rc = rc;
        snprintf(q->text, sizeof q->text, "%s", err_text());
    }
    pthread_mutex_unlock(&q->lock);
}

void offload_queue_done(struct offload_queue *q, int64_t number)
{
    pthread_mutex_lock(&q->lock);
    q->job[number % OFFLOAD_JOBS].done = true;
    while (q->n_done < q->n_put && q->job[q->n_done % OFFLOAD_JOBS].done)
        q->n_done++;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static void *work(void *arg)
{
    struct offload *o = arg;
    o->ops->work(o->io, &o->queue);
    return NULL;
}

static struct offload_job make_job(const struct offload *o, bool write,
                                   const struct offload_tile *tile, int buffer)
{
    struct offload_job j = {.write = write, .buffer = buffer, .n_pieces = o->n_arrays};
    size_t n_bytes = (size_t)tile->n * sizeof(float);
    REQUIRE(tile->n > 0 && tile->n <= o->conf.tile_elems);
    if (o->direct)
        n_bytes = (n_bytes + OFFLOAD_ALIGN - 1) / OFFLOAD_ALIGN * OFFLOAD_ALIGN;
    for (int a = 0; a < o->n_arrays; a++) {
        j.piece[a].bytes = buffer_of(o, buffer, a);
        j.piece[a].n_bytes = n_bytes;
        j.piece[a].at = o->at[a] + tile->begin * (int64_t)sizeof(float);
        REQUIRE(!o->direct || j.piece[a].at % OFFLOAD_ALIGN == 0);
    }
    return j;
}

/* Returns the number that the job has to wait() for. */
static int64_t put(struct offload *o, bool write, const struct offload_tile *tile, int buffer)
{
    struct offload_queue *q = &o->queue;
    const struct offload_job j = make_job(o, write, tile, buffer);
    pthread_mutex_lock(&q->lock);
    while (q->n_put - q->n_done == OFFLOAD_JOBS)
        pthread_cond_wait(&q->changed, &q->lock);
    q->job[q->n_put % OFFLOAD_JOBS] = j;
    int64_t number = ++q->n_put;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (o->ops->wake)
        o->ops->wake(o->io);
    return number;
}

static void wait_for(struct offload *o, int64_t number)
{
    struct offload_queue *q = &o->queue;
    pthread_mutex_lock(&q->lock);
    while (q->n_done < number)
        pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

/* Signals are for the thread that trains: this one has them blocked. */
static int start_thread(struct offload *o)
{
    sigset_t all, before;
    pthread_mutex_init(&o->queue.lock, NULL);
    pthread_cond_init(&o->queue.changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&o->thread, NULL, work, o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        FAIL(ERR_RESOURCE, "no thread for input and output: %s", strerror(rc));
    o->has_thread = true;
    return ERR_OK;
}

/* A file without a name: O_TMPFILE where the file system knows it. */
static int open_file(struct offload *o)
{
    const char *dir = o->conf.dir;
    o->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (o->fd >= 0)
        return ERR_OK;
    char path[4096];
    snprintf(path, sizeof path, "%s/stretto-XXXXXX", dir);
    o->fd = mkstemp(path);
    if (o->fd < 0)
        FAIL(ERR_RESOURCE, "nvme_path = %s: %s", dir, strerror(errno));
    unlink(path);
    return ERR_OK;
}

static int take_room(struct offload *o)
{
    int64_t n_bytes = o->at[o->n_arrays];
    if (n_bytes == 0)
        return ERR_OK;
    int rc = posix_fallocate(o->fd, 0, n_bytes);
    struct statvfs v;
    if (rc != 0) {
        bool known = fstatvfs(o->fd, &v) == 0;
        /* what was taken so far is given back first, so that the figure is the disk's */
        if (ftruncate(o->fd, 0) == 0)
            known = fstatvfs(o->fd, &v) == 0;
        FAIL(ERR_RESOURCE, "nvme_path = %s: %s: %lld MiB are needed, %lld MiB are free",
             o->conf.dir, strerror(rc), (long long)(n_bytes >> 20) + 1,
             known ? (long long)(v.f_bavail * v.f_frsize >> 20) : -1);
    }
    o->map = mmap(NULL, (size_t)n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, o->fd, 0);
    if (o->map == MAP_FAILED) {
        o->map = NULL;
        FAIL(ERR_RESOURCE, "nvme_path = %s: cannot be mapped: %s", o->conf.dir, strerror(errno));
    }
    return ERR_OK;
}

/* The one that the job names, or the first that this machine lets us have. */
static int choose_method(struct offload *o)
{
    const char *want = o->conf.io_method;
    if (!want || text_same(want, offload_methods[0]))
        want = NULL;
    snprintf(o->refused, sizeof o->refused, "built without liburing");
    for (int i = 0; offload_list[i]; i++) {
        const struct offload_io_ops *ops = offload_list[i];
        if (want && !text_same(want, ops->name))
            continue;
        if (ops->open(&o->conf, o->fd, o->buffer, &o->io) == ERR_OK) {
            o->ops = ops;
            o->direct = ops->direct(o->io);
            if (want || text_same(ops->name, offload_methods[1]))
                o->refused[0] = 0;
            return ERR_OK;
        }
        snprintf(o->refused, sizeof o->refused, "%s", err_text());
    }
    FAIL(ERR_RESOURCE, "aio.io_method = %s: %s", want ? want : "auto", o->refused);
}

static int build(struct offload *o)
{
    TRY(open_file(o));
    TRY(take_room(o));
    size_t n = (size_t)offload_buffer_elems(&o->conf, o->n_arrays) * sizeof *o->buffer;
    n = (n + OFFLOAD_ALIGN - 1) / OFFLOAD_ALIGN * OFFLOAD_ALIGN;
    o->buffer = aligned_alloc(OFFLOAD_ALIGN, n);
    if (!o->buffer)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of buffers", n);
    TRY(choose_method(o));
    return start_thread(o);
}

int offload_create(const struct offload_conf *conf, int n_arrays, const int64_t *array_elems,
                   struct offload **out)
{
    REQUIRE(n_arrays <= OFFLOAD_ARRAYS_MAX);
    struct offload *o = calloc(1, sizeof *o);
    if (!o)
        FATAL("out of memory");
    *o = (struct offload){.conf = *conf, .fd = -1, .n_arrays = n_arrays};
    for (int a = 0; a < n_arrays; a++)
        o->at[a + 1] = o->at[a] + array_elems[a] * (int64_t)sizeof(float);
    int rc = build(o);
    if (rc != ERR_OK) {
        offload_destroy(&o);
        return rc;
    }
    *out = o;
    return ERR_OK;
}

void offload_destroy(struct offload **offload)
{
    struct offload *o = *offload;
    if (!o)
        return;
    if (o->has_thread) {
        pthread_mutex_lock(&o->queue.lock);
        o->queue.quit = true;
        pthread_cond_broadcast(&o->queue.changed);
        pthread_mutex_unlock(&o->queue.lock);
        if (o->ops->wake)
            o->ops->wake(o->io);
        pthread_join(o->thread, NULL);
        pthread_mutex_destroy(&o->queue.lock);
        pthread_cond_destroy(&o->queue.changed);
    }
    if (o->io)
        o->ops->close(o->io);
    if (o->map)
        munmap(o->map, (size_t)o->at[o->n_arrays]);
    if (o->fd >= 0)
        close(o->fd);
    free(o->buffer);
    free(o);
    *offload = NULL;
}

void offload_describe(const struct offload *o, struct text *out)
{
    o->ops->describe(o->io, out);
    if (o->refused[0])
        text_printf(out, " (%s)", o->refused);
}

float *offload_array(const struct offload *o, int i)
{
    return (float *)(void *)(o->map + o->at[i]);
}

void offload_forget(struct offload *o)
{
    if (o->map)
        madvise(o->map, (size_t)o->at[o->n_arrays], MADV_DONTNEED);
    posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
}

void offload_stream(struct offload *o, const struct offload_tile *tile, int64_t n_tiles,
                    void (*f)(void *arg, const struct offload_tile *tile, float *const *values),
                    void *arg)
{
    float *values[OFFLOAD_ARRAYS_MAX];
    int64_t next = n_tiles > 0 ? put(o, false, &tile[0], 0) : 0;
    for (int64_t i = 0; i < n_tiles; i++) {
        int buffer = (int)(i % OFFLOAD_BUFFERS);
        int64_t have = next;
        if (i + 1 < n_tiles && o->conf.read_ahead)
            next = put(o, false, &tile[i + 1], 1 - buffer);
        wait_for(o, have);
        for (int a = 0; a < o->n_arrays; a++)
            values[a] = buffer_of(o, buffer, a);
        f(arg, &tile[i], values);
        int64_t written = put(o, true, &tile[i], buffer);
        if (!o->conf.write_behind)
            wait_for(o, written);
        if (i + 1 < n_tiles && !o->conf.read_ahead)
            next = put(o, false, &tile[i + 1], 1 - buffer);
    }
    wait_for(o, o->queue.n_put); /* only this thread puts */
}

int offload_status(struct offload *o)
{
    if (o->queue.rc != ERR_OK)
        return err_set(ERR_RESOURCE, "%s", o->queue.text);
    return ERR_OK;
}
