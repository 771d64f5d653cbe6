/* Tasks: one thread that runs the gathers and sums of all communicators of a process in the order
 * in which they were started. */
#include "comm/comm_impl.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a task came, ended, or all is to end */
    struct comm_task *first, *last;
    bool quit;
};

static void execute(struct comm_task *t)
{
    struct comm *c = t->comm;
    if (t->what == COMM_ALL_GATHER)
        c->ops->all_gather(c, t->buf, t->cut, t->elem_bytes);
    else
        c->ops->reduce_scatter(c, t->buf, t->cut, t->slice_elems, t->dtype, t->scratch);
}

static void *run(void *arg)
{
    struct worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        struct comm_task *t = w->first;
        if (!t) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        execute(t);
        pthread_mutex_lock(&w->lock);
        w->first = t->next; /* only now: an empty queue means that nothing is under way */
        t->done = true;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct worker *worker_start(void)
{
    struct worker *w = calloc(1, sizeof *w);
    if (!w)
        FATAL("out of memory for a thread");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    /* signals are for the thread that trains */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        FATAL("no thread for communication: status %d", rc);
    return w;
}

void worker_stop(struct worker **worker)
{
    struct worker *w = *worker;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    REQUIRE(!w->first);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *worker = NULL;
}

bool comm_in_background(const struct comm *c)
{
    return c->worker && pthread_equal(pthread_self(), c->worker->thread);
}

void comm_start(struct comm *c, struct comm_task *t)
{
    struct worker *w = c->worker;
    t->comm = c;
    t->next = NULL;
    t->done = false;
    if (!w) {
        execute(t);
        t->done = true;
        return;
    }
    pthread_mutex_lock(&w->lock);
    if (w->first)
        w->last->next = t;
    else
        w->first = t;
    w->last = t;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void task_wait(struct comm *c, struct comm_task *t)
{
    struct worker *w = c->worker;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    while (!t->done)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void comm_wait(struct comm_task *t)
{
    if (t->comm)
        t->comm->ops->wait(t->comm, t);
}

void comm_run(struct comm *c, struct comm_task *t)
{
    struct worker *w = c->worker;
    bool idle = true;
    if (w) {
        pthread_mutex_lock(&w->lock);
        idle = !w->first;
        pthread_mutex_unlock(&w->lock);
    }
    t->comm = c;
    if (idle) { /* no hand-over to another thread where this one would only wait for it */
        execute(t);
        t->done = true;
        return;
    }
    comm_start(c, t);
    comm_wait(t);
}
