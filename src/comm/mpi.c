/* The table over MPI, blocking, on host memory.  Library failures print their text and end the job:
 * no caller could go on in the middle of a collective. */
#include "comm/comm_impl.h"

#include "tensor/half.h"
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct mpi_impl {
    MPI_Comm comm; /* control: the opener's thread */
    MPI_Comm bulk; /* its duplicate: gathers and sums, maybe on the thread that runs tasks */
    struct tree tree;
    MPI_Request *request; /* owned: as many as an operation has under way */
    bool is_world;
};

static void mpi_check(int rc, const char *what)
{
    if (rc == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    fprintf(stderr, "stretto: error: %s failed: %s\n", what, text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, ERR_COMM);
}
#define MPI_TRY(call) mpi_check((call), #call)

static struct mpi_impl *impl_of(const struct comm *c)
{
    return c->impl;
}

static int narrow(int64_t n)
{
    if (n < 0 || n > INT_MAX)
        FATAL("an MPI count of %lld", (long long)n);
    return (int)n;
}

static MPI_Datatype type_of(size_t elem_bytes)
{
    switch (elem_bytes) {
    case 1:
        return MPI_UINT8_T;
    case 2:
        return MPI_UINT16_T;
    case 4:
        return MPI_UINT32_T;
    case 8:
        return MPI_UINT64_T;
    default:
        FATAL("an element of %zu bytes", elem_bytes);
    }
}

/* Open MPI moves messages only inside its calls, and its own waiting takes the core that computes.
 * A thread that runs tasks therefore looks, and sleeps in between (measured, reference mpi.md). */
static void wait_all(struct comm *c, int n)
{
    struct mpi_impl *m = impl_of(c);
    if (!comm_in_background(c)) {
        MPI_TRY(MPI_Waitall(n, m->request, MPI_STATUSES_IGNORE));
        return;
    }
    enum { YIELDS = 20, SLEEP_NS = 50000 };
    for (int i = 0, done = 0; !done; i++) {
        MPI_TRY(MPI_Testall(n, m->request, &done, MPI_STATUSES_IGNORE));
        if (!done && i < YIELDS)
            sched_yield();
        else if (!done)
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

enum { TAG_TREE = 1, TAG_RING, TAG_EXCHANGE };

static void send_part(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes, int part,
                      int to, int tag, int request)
{
    struct mpi_impl *m = impl_of(c);
    MPI_TRY(MPI_Isend((char *)buf + (size_t)cut[part] * elem_bytes,
                      narrow(cut[part + 1] - cut[part]), type_of(elem_bytes), to, tag, m->bulk,
                      &m->request[request]));
}

static void receive_part(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes, int part,
                         int from, int tag, int request)
{
    struct mpi_impl *m = impl_of(c);
    MPI_TRY(MPI_Irecv((char *)buf + (size_t)cut[part] * elem_bytes,
                      narrow(cut[part + 1] - cut[part]), type_of(elem_bytes), from, tag, m->bulk,
                      &m->request[request]));
}

/* A ring: every part passes every rank, so that neighbours on a node cost its link nothing. */
static void mpi_all_gather(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    int left = (c->rank + c->size - 1) % c->size, right = (c->rank + 1) % c->size;
    for (int i = 0; i < c->size - 1; i++) {
        int have = (c->rank + c->size - i) % c->size, want = (have + c->size - 1) % c->size;
        receive_part(c, buf, cut, elem_bytes, want, left, TAG_RING, 0);
        send_part(c, buf, cut, elem_bytes, have, right, TAG_RING, 1);
        wait_all(c, 2);
    }
}

void mpi_exchange(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes,
                  const struct exchange *x)
{
    for (int i = 0; i < x->n_from; i++)
        receive_part(c, buf, cut, elem_bytes, x->from[i], x->from[i], TAG_EXCHANGE, i);
    for (int i = 0; i < x->n_to; i++)
        send_part(c, buf, cut, elem_bytes, c->rank, x->to[i], TAG_EXCHANGE, x->n_from + i);
    wait_all(c, x->n_from + x->n_to);
}

/* Of each part the elements from at on, n_elem at most, and what sums are rounded to. */
struct slice {
    const int64_t *cut;
    int64_t at, n_elem;
    enum dtype dtype;
};

static float *slice_of(const struct slice *s, int c, float *buf, int64_t *n)
{
    int64_t begin = s->cut[c] + s->at, end = s->cut[c + 1];
    *n = begin >= end ? 0 : end - begin < s->n_elem ? end - begin : s->n_elem;
    return buf + begin;
}

static int64_t edge_elems(const struct tree *t, const struct tree_edge *e, const struct slice *s)
{
    int64_t n, sum = 0;
    for (int i = 0; i < e->n; i++) {
        slice_of(s, t->chunk[e->first + i], NULL, &n);
        sum += n;
    }
    return sum;
}

static void edge_pack(const struct tree *t, const struct tree_edge *e, const struct slice *s,
                      float *buf, char *out)
{
    for (int i = 0; i < e->n; i++) {
        int64_t n;
        const float *x = slice_of(s, t->chunk[e->first + i], buf, &n);
        if (s->dtype == DTYPE_F32)
            memcpy(out, x, (size_t)n * sizeof *x);
        else
            half_narrow_array(s->dtype, (uint16_t *)(void *)out, x, n);
        out += (size_t)n * dtype_bytes(s->dtype);
    }
}

static void edge_add(const struct tree *t, const struct tree_edge *e, const struct slice *s,
                     float *buf, const char *in)
{
    for (int i = 0; i < e->n; i++) {
        int64_t n;
        float *y = slice_of(s, t->chunk[e->first + i], buf, &n);
        if (s->dtype == DTYPE_F32) {
            const float *x = (const float *)(const void *)in;
            for (int64_t j = 0; j < n; j++)
                y[j] += x[j];
        } else {
            half_add_array(s->dtype, y, (const uint16_t *)(const void *)in, n);
        }
        in += (size_t)n * dtype_bytes(s->dtype);
    }
}

/* At most one addend of each part is sent or received on a level, so scratch is never outgrown. */
static void reduce_slice(struct comm *c, int first_level, float *buf, const struct slice *s,
                         float *scratch)
{
    struct mpi_impl *m = impl_of(c);
    const struct tree *t = &m->tree;
    int begin = first_level > 0 ? t->level_end[first_level - 1] : 0;
    size_t elem_bytes = dtype_bytes(s->dtype);
    MPI_Datatype type = s->dtype == DTYPE_F32 ? MPI_FLOAT : MPI_UINT16_T;
    for (int l = first_level; l < t->n_levels; begin = t->level_end[l++]) {
        int end = t->level_end[l];
        char *at = (char *)scratch;
        for (int e = begin; e < end; e++) {
            const struct tree_edge *edge = &t->edge[e];
            int n = narrow(edge_elems(t, edge, s));
            MPI_Request *q = &m->request[e - begin];
            if (edge->send) {
                edge_pack(t, edge, s, buf, at);
                MPI_TRY(MPI_Isend(at, n, type, edge->peer, TAG_TREE, m->bulk, q));
            } else {
                MPI_TRY(MPI_Irecv(at, n, type, edge->peer, TAG_TREE, m->bulk, q));
            }
            at += (size_t)n * elem_bytes;
        }
        wait_all(c, end - begin);
        at = (char *)scratch;
        for (int e = begin; e < end; e++) {
            if (!t->edge[e].send)
                edge_add(t, &t->edge[e], s, buf, at);
            at += (size_t)edge_elems(t, &t->edge[e], s) * elem_bytes;
        }
    }
}

void mpi_reduce_levels(struct comm *c, int first_level, float *buf, const int64_t *cut,
                       int64_t slice_elems, enum dtype dtype, float *scratch)
{
    int64_t longest = 0;
    for (int r = 0; r < c->size; r++)
        longest = cut[r + 1] - cut[r] > longest ? cut[r + 1] - cut[r] : longest;
    for (int64_t at = 0; at < longest; at += slice_elems) {
        const struct slice s = {cut, at, slice_elems, dtype};
        reduce_slice(c, first_level, buf, &s, scratch);
    }
}

static void mpi_reduce_scatter(struct comm *c, float *buf, const int64_t *cut, int64_t slice_elems,
                               enum dtype dtype, float *scratch)
{
    mpi_reduce_levels(c, 0, buf, cut, slice_elems, dtype, scratch);
}

static void mpi_gather(struct comm *c, const void *own, int64_t n, void *all, const int64_t *cut,
                       size_t elem_bytes)
{
    int *count = NULL, *displ = NULL;
    if (c->rank == 0) {
        count = malloc((size_t)c->size * sizeof *count);
        displ = malloc((size_t)c->size * sizeof *displ);
        if (!count || !displ)
            FATAL("out of memory to gather from %d ranks", c->size);
    }
    for (int r = 0; r < c->size && c->rank == 0; r++) {
        count[r] = narrow(cut[r + 1] - cut[r]);
        displ[r] = narrow(cut[r]);
    }
    MPI_TRY(MPI_Gatherv(own, narrow(n), type_of(elem_bytes), all, count, displ, type_of(elem_bytes),
                        0, impl_of(c)->comm));
    free(count);
    free(displ);
}

static void mpi_broadcast(struct comm *c, void *buf, size_t n_bytes, int root)
{
    const size_t most = 1u << 30;
    for (char *p = buf; n_bytes > 0;) {
        size_t n = n_bytes < most ? n_bytes : most;
        MPI_TRY(MPI_Bcast(p, (int)n, MPI_BYTE, root, impl_of(c)->comm));
        p += n;
        n_bytes -= n;
    }
}

static void mpi_sum_i64(struct comm *c, int64_t *v, int n)
{
    MPI_TRY(MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_INT64_T, MPI_SUM, impl_of(c)->comm));
}

static void mpi_max_i64(struct comm *c, int64_t *v, int n)
{
    MPI_TRY(MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_INT64_T, MPI_MAX, impl_of(c)->comm));
}

static void mpi_barrier(struct comm *c)
{
    MPI_TRY(MPI_Barrier(impl_of(c)->comm));
}

static struct comm *mpi_wrap(MPI_Comm comm, bool is_world, struct worker *worker);

static struct comm *mpi_split(struct comm *c, int color, int key)
{
    MPI_Comm part;
    MPI_TRY(MPI_Comm_split(impl_of(c)->comm, color, key, &part));
    int size;
    MPI_TRY(MPI_Comm_size(part, &size));
    if (size > 1)
        return mpi_wrap(part, false, c->worker);
    MPI_TRY(MPI_Comm_free(&part));
    return comm_self();
}

static void mpi_close(struct comm **c)
{
    struct mpi_impl *m = impl_of(*c);
    MPI_TRY(MPI_Comm_free(&m->bulk));
    if (m->is_world) {
        worker_stop(&(*c)->worker);
        MPI_TRY(MPI_Finalize());
    } else {
        MPI_TRY(MPI_Comm_free(&m->comm));
    }
    tree_clear(&m->tree);
    free((*c)->sum_room);
    free(m->request);
    free(m);
    free(*c);
    *c = NULL;
}

static const struct comm_ops mpi_ops = {
    .name = "mpi",
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .wait = task_wait,
    .gather = mpi_gather,
    .broadcast = mpi_broadcast,
    .sum_i64 = mpi_sum_i64,
    .max_i64 = mpi_max_i64,
    .barrier = mpi_barrier,
    .split = mpi_split,
    .close = mpi_close,
};

/* Who shares this rank's memory. */
static void find_node(struct comm *c, MPI_Comm comm)
{
    MPI_Comm node;
    MPI_TRY(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &node));
    MPI_TRY(MPI_Comm_rank(node, &c->node_rank));
    MPI_TRY(MPI_Comm_size(node, &c->node_size));
    c->node = c->rank;
    MPI_TRY(MPI_Bcast(&c->node, 1, MPI_INT, 0, node));
    MPI_TRY(MPI_Comm_free(&node));
}

static struct comm *mpi_wrap(MPI_Comm comm, bool is_world, struct worker *worker)
{
    struct comm *c = comm_zeroed(1, sizeof *c);
    struct mpi_impl *m = comm_zeroed(1, sizeof *m);
    *m = (struct mpi_impl){.comm = comm, .is_world = is_world};
    *c = (struct comm){.ops = &mpi_ops, .impl = m, .worker = worker};
    MPI_TRY(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(comm, &c->rank));
    MPI_TRY(MPI_Comm_size(comm, &c->size));
    MPI_TRY(MPI_Comm_dup(comm, &m->bulk));
    find_node(c, comm);
    comm_sum_room(c);
    tree_init(&m->tree, c->rank, c->size);
    int n_edges = m->tree.n_levels ? m->tree.level_end[m->tree.n_levels - 1] : 0;
    int n_requests = n_edges > 2 * c->size ? n_edges : 2 * c->size;
    m->request = comm_zeroed((size_t)n_requests, sizeof *m->request);
    return c;
}

static void mpi_end_job(int status)
{
    int started = 0, ended = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (started && !ended)
        MPI_Abort(MPI_COMM_WORLD, status);
}

/* Open MPI spins while it waits, which costs factors of 50 to 700 where ranks exceed cores; it only
 * knows so itself when it was told of the oversubscription (measured, reference mpi.md). */
static void yield_if_crowded(void)
{
    const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!here)
        here = getenv("SLURM_NTASKS_PER_NODE");
    cpu_set_t set;
    int n_ranks = here ? atoi(here) : 0, n_cores = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n_cores = CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    /* bound ranks see only their own core: then the node's count decides */
    if (n_cores < online)
        n_cores = (int)online;
    if (n_ranks == 0 || n_ranks > n_cores)
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

int comm_mpi_open(struct comm **out)
{
    yield_if_crowded();
    int got = 0;
    int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &got);
    if (rc != MPI_SUCCESS)
        FAIL(ERR_COMM, "MPI_Init failed with status %d", rc);
    err_on_fatal(mpi_end_job);
    /* a library that only one thread may call runs tasks where they are started */
    *out = mpi_wrap(MPI_COMM_WORLD, true, got == MPI_THREAD_MULTIPLE ? worker_start() : NULL);
    return ERR_OK;
}
