/* A file, its mapping, two buffers and one thread.  The thread works through a queue in order: with
 * the write of tile i - 1 in front of the read of tile i + 1, which takes the same buffer, nobody
 * has to wait for more than what is needed next. */
#include "parallel/offload.h"

#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { N_BUFFERS = 2, N_JOBS = 2 * N_BUFFERS };

struct io_job {
    bool write;
    const struct offload_tile *tile;
    int buffer;
};

struct offload {
    struct offload_conf conf;
    int fd, n_arrays;
    int64_t at[OFFLOAD_ARRAYS_MAX + 1]; /* bytes where each array begins */
    char *map;
    float *buffer; /* (N_BUFFERS, n_arrays, tile_elems) */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct io_job job[N_JOBS]; /* a ring */
    int64_t n_put, n_done;     /* jobs so far */
    bool quit;
    int rc; /* of the disk, since the file was made */
    char text[ERR_TEXT_BYTES];
};

int64_t offload_buffer_elems(const struct offload_conf *conf, int n_arrays)
{
    return conf->dir ? N_BUFFERS * n_arrays * conf->tile_elems : 0;
}

static float *buffer_of(const struct offload *o, int buffer, int array)
{
    return o->buffer + ((int64_t)buffer * o->n_arrays + array) * o->conf.tile_elems;
}

/* Signals are for the thread that trains: this one has them blocked. */
static int transfer(struct offload *o, const struct io_job *j)
{
    size_t n_bytes = (size_t)j->tile->n * sizeof(float);
    for (int a = 0; a < o->n_arrays; a++) {
        int64_t at = o->at[a] + j->tile->begin * (int64_t)sizeof(float);
        float *v = buffer_of(o, j->buffer, a);
        if (!j->write) {
            TRY(file_pread_fd(o->fd, o->conf.dir, v, n_bytes, at));
            continue;
        }
        TRY(file_pwrite_fd(o->fd, o->conf.dir, v, n_bytes, at));
        /* begin to clean the page cache now, so that it can be let go of later */
        sync_file_range(o->fd, at, (off_t)n_bytes, SYNC_FILE_RANGE_WRITE);
    }
    return ERR_OK;
}

static void *work(void *arg)
{
    struct offload *o = arg;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (o->n_done == o->n_put && !o->quit)
            pthread_cond_wait(&o->changed, &o->lock);
        if (o->n_done == o->n_put)
            break;
        const struct io_job j = o->job[o->n_done % N_JOBS];
        pthread_mutex_unlock(&o->lock);
        int rc = transfer(o, &j);
        pthread_mutex_lock(&o->lock);
        if (rc != ERR_OK && o->rc == ERR_OK) {
            o->rc = rc;
            snprintf(o->text, sizeof o->text, "%s", err_text());
        }
        o->n_done++;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Returns the number that the job has to wait() for. */
static int64_t put(struct offload *o, bool write, const struct offload_tile *tile, int buffer)
{
    pthread_mutex_lock(&o->lock);
    while (o->n_put - o->n_done == N_JOBS)
        pthread_cond_wait(&o->changed, &o->lock);
    o->job[o->n_put % N_JOBS] = (struct io_job){write, tile, buffer};
    int64_t number = ++o->n_put;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return number;
}

static void wait_for(struct offload *o, int64_t number)
{
    pthread_mutex_lock(&o->lock);
    while (o->n_done < number)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

static int start_thread(struct offload *o)
{
    sigset_t all, before;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
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

static int build(struct offload *o)
{
    TRY(open_file(o));
    TRY(take_room(o));
    size_t n = (size_t)offload_buffer_elems(&o->conf, o->n_arrays);
    o->buffer = malloc(n * sizeof *o->buffer);
    if (!o->buffer)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of buffers", n * sizeof *o->buffer);
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
        pthread_mutex_lock(&o->lock);
        o->quit = true;
        pthread_cond_broadcast(&o->changed);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
        pthread_mutex_destroy(&o->lock);
        pthread_cond_destroy(&o->changed);
    }
    if (o->map)
        munmap(o->map, (size_t)o->at[o->n_arrays]);
    if (o->fd >= 0)
        close(o->fd);
    free(o->buffer);
    free(o);
    *offload = NULL;
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
        int buffer = (int)(i % N_BUFFERS);
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
    wait_for(o, o->n_put); /* only this thread puts */
}

int offload_status(struct offload *o)
{
    if (o->rc != ERR_OK)
        return err_set(ERR_RESOURCE, "%s", o->text);
    return ERR_OK;
}
