/* The segment that ranks of a node map, and counters in it that say how far each of them is. */
#include "comm/node_impl.h"

#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

static size_t pages(size_t n_bytes)
{
    return (n_bytes + PAGE - 1) / PAGE * PAGE;
}

/* What a rank needs to find another's memory, and to know that it is the right one. */
struct handle {
    int64_t pid, fd, token;
};

static int64_t make_token(void)
{
    int64_t t;
    if (getentropy(&t, sizeof t) != 0)
        t = getpid();
    return t;
}

static int make(struct node_memory *m, struct handle *h)
{
    int64_t free_bytes = memory_available();
    if (m->n_bytes > (size_t)free_bytes)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of node memory: %lld are available", m->n_bytes,
             (long long)free_bytes);
    m->fd = memfd_create("stretto", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)m->n_bytes) != 0)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of node memory: %s", m->n_bytes,
             strerror(errno));
    *h = (struct handle){.pid = getpid(), .fd = m->fd, .token = make_token()};
    if (pwrite(m->fd, &h->token, sizeof h->token, 0) != sizeof h->token)
        FAIL(ERR_RESOURCE, "no memory for node memory: %s", strerror(errno));
    return ERR_OK;
}

static int find(struct node_memory *m, const struct handle *h)
{
    char path[64];
    int64_t token = 0;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)h->pid, (long long)h->fd);
    m->fd = open(path, O_RDWR | O_CLOEXEC);
    if (m->fd < 0)
        FAIL(ERR_COMM, "node memory: %s cannot be opened: %s", path, strerror(errno));
    /* process numbers of another container would lead elsewhere */
    if (pread(m->fd, &token, sizeof token, 0) != sizeof token || token != h->token)
        FAIL(ERR_COMM, "node memory: %s is not what another rank of this node made", path);
    return ERR_OK;
}

/* Pages come now and not in a step: a rank's own part, and its share of what the node has once, so
 * that each lies near a rank that uses it. */
static int touch(const struct node_memory *m)
{
    size_t share = pages(m->shared_bytes / (size_t)m->size), begin = share * (size_t)m->rank;
    size_t end = m->rank == m->size - 1 ? m->shared_bytes : begin + share;
    end = end > m->shared_bytes ? m->shared_bytes : end;
    size_t head = m->head_bytes;
    if (begin < end && fallocate(m->fd, 0, (off_t)(head + begin), (off_t)(end - begin)) != 0)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of node memory: %s", end - begin,
             strerror(errno));
    size_t own = head + m->shared_bytes + m->own_bytes * (size_t)m->rank;
    if (m->own_bytes > 0 && fallocate(m->fd, 0, (off_t)own, (off_t)m->own_bytes) != 0)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of node memory: %s", m->own_bytes,
             strerror(errno));
    return ERR_OK;
}

static int map(struct node_memory *m)
{
    m->base = mmap(NULL, m->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->base == MAP_FAILED) {
        m->base = NULL;
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of node memory: %s", m->n_bytes,
             strerror(errno));
    }
    m->progress = (struct progress *)(void *)(m->base + PAGE);
    return touch(m);
}

int node_memory_open(struct node_memory *m, struct comm *node, size_t shared_bytes,
                     size_t own_bytes)
{
    struct handle h = {0};
    *m = (struct node_memory){.fd = -1,
                              .rank = node->rank,
                              .size = node->size,
                              .shared_bytes = pages(shared_bytes),
                              .own_bytes = pages(own_bytes)};
    m->head_bytes = PAGE + pages((size_t)m->size * sizeof *m->progress);
    m->n_bytes = m->head_bytes + m->shared_bytes + m->own_bytes * (size_t)m->size;
    int rc = m->rank == 0 ? make(m, &h) : ERR_OK;
    TRY_ALL(node, rc);
    node->ops->broadcast(node, &h, sizeof h, 0);
    rc = m->rank == 0 ? ERR_OK : find(m, &h);
    if (rc == ERR_OK)
        rc = map(m);
    return comm_agree(node, rc);
}

void node_memory_close(struct node_memory *m)
{
    if (m->base)
        munmap(m->base, m->n_bytes);
    if (m->fd >= 0)
        close(m->fd);
    *m = (struct node_memory){.fd = -1};
}

char *node_memory_own(const struct node_memory *m, int rank)
{
    return m->base + m->head_bytes + m->shared_bytes + m->own_bytes * (size_t)rank;
}

size_t node_memory_used(const struct node_memory *m)
{
    struct stat st;
    return m->rank == 0 && fstat(m->fd, &st) == 0 ? (size_t)st.st_blocks * 512 : 0;
}

static long futex(_Atomic uint32_t *at, int op, uint32_t value, const struct timespec *limit)
{
    return syscall(SYS_futex, (uintptr_t)at, op, value, limit, NULL, 0);
}

void counter_raise(struct counter *c)
{
    atomic_fetch_add(&c->value, 1);
    if (atomic_load(&c->sleepers) > 0)
        futex(&c->value, FUTEX_WAKE, INT32_MAX, NULL);
}

/* Ranks may exceed cores: give the core away first, then sleep. */
void counter_await(struct counter *c, uint32_t value)
{
    enum { YIELDS = 50, LIMIT_NS = 100000000 };
    for (int i = 0;; i++) {
        uint32_t now = atomic_load(&c->value);
        if ((int32_t)(now - value) >= 0)
            return;
        if (i < YIELDS) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&c->sleepers, 1);
        now = atomic_load(&c->value);
        if ((int32_t)(now - value) < 0)
            futex(&c->value, FUTEX_WAIT, now, &(struct timespec){.tv_nsec = LIMIT_NS});
        atomic_fetch_sub(&c->sleepers, 1);
    }
}
