/* The table over MPI, blocking, on host memory.  Library failures print their text and end the job:
 * no caller could go on in the middle of a collective. */
#include "comm/comm_impl.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mpi_impl {
    MPI_Comm comm;
    struct tree tree;
    MPI_Request *request; /* owned: one an edge */
    int *count, *displ;   /* owned: (size) */
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

static void mpi_all_gather(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    struct mpi_impl *m = impl_of(c);
    for (int r = 0; r < c->size; r++) {
        m->count[r] = narrow(cut[r + 1] - cut[r]);
        m->displ[r] = narrow(cut[r]);
    }
    MPI_TRY(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buf, m->count, m->displ,
                           type_of(elem_bytes), m->comm));
}

struct parts {
    const int64_t *begin, *end;
};

static int64_t edge_elems(const struct tree *t, const struct tree_edge *e, struct parts p)
{
    int64_t n = 0;
    for (int i = 0; i < e->n; i++) {
        int c = t->chunk[e->first + i];
        n += p.end[c] - p.begin[c];
    }
    return n;
}

static void edge_pack(const struct tree *t, const struct tree_edge *e, struct parts p,
                      const float *buf, float *out)
{
    for (int i = 0; i < e->n; i++) {
        int c = t->chunk[e->first + i];
        int64_t n = p.end[c] - p.begin[c];
        memcpy(out, buf + p.begin[c], (size_t)n * sizeof *out);
        out += n;
    }
}

static void edge_add(const struct tree *t, const struct tree_edge *e, struct parts p, float *buf,
                     const float *in)
{
    for (int i = 0; i < e->n; i++) {
        int c = t->chunk[e->first + i];
        int64_t n = p.end[c] - p.begin[c];
        float *y = buf + p.begin[c];
        for (int64_t j = 0; j < n; j++)
            y[j] += in[j];
        in += n;
    }
}

/* At most one addend of each part is sent or received on a level, so scratch is never outgrown. */
static void mpi_reduce_scatter(struct comm *c, float *buf, const int64_t *first,
                               const int64_t *last, float *scratch)
{
    enum { TAG = 1 };
    struct mpi_impl *m = impl_of(c);
    const struct tree *t = &m->tree;
    const struct parts p = {first, last};
    for (int l = 0, begin = 0; l < t->n_levels; begin = t->level_end[l++]) {
        int end = t->level_end[l];
        float *at = scratch;
        for (int e = begin; e < end; e++) {
            const struct tree_edge *edge = &t->edge[e];
            int n = narrow(edge_elems(t, edge, p));
            MPI_Request *q = &m->request[e - begin];
            if (edge->send) {
                edge_pack(t, edge, p, buf, at);
                MPI_TRY(MPI_Isend(at, n, MPI_FLOAT, edge->peer, TAG, m->comm, q));
            } else {
                MPI_TRY(MPI_Irecv(at, n, MPI_FLOAT, edge->peer, TAG, m->comm, q));
            }
            at += n;
        }
        MPI_TRY(MPI_Waitall(end - begin, m->request, MPI_STATUSES_IGNORE));
        at = scratch;
        for (int e = begin; e < end; e++) {
            if (!t->edge[e].send)
                edge_add(t, &t->edge[e], p, buf, at);
            at += edge_elems(t, &t->edge[e], p);
        }
    }
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

static struct comm *mpi_wrap(MPI_Comm comm, bool is_world);

static struct comm *mpi_split(struct comm *c, int color, int key)
{
    MPI_Comm part;
    MPI_TRY(MPI_Comm_split(impl_of(c)->comm, color, key, &part));
    int size;
    MPI_TRY(MPI_Comm_size(part, &size));
    if (size > 1)
        return mpi_wrap(part, false);
    MPI_TRY(MPI_Comm_free(&part));
    return comm_self();
}

static void mpi_close(struct comm **c)
{
    struct mpi_impl *m = impl_of(*c);
    if (m->is_world)
        MPI_TRY(MPI_Finalize());
    else
        MPI_TRY(MPI_Comm_free(&m->comm));
    tree_clear(&m->tree);
    free((*c)->sum_room);
    free((*c)->sum_cut);
    free(m->request);
    free(m->count);
    free(m->displ);
    free(m);
    free(*c);
    *c = NULL;
}

static const struct comm_ops mpi_ops = {
    .name = "mpi",
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .broadcast = mpi_broadcast,
    .sum_i64 = mpi_sum_i64,
    .max_i64 = mpi_max_i64,
    .barrier = mpi_barrier,
    .split = mpi_split,
    .close = mpi_close,
};

static void *zeroed(size_t n, size_t item_bytes)
{
    void *p = calloc(n, item_bytes);
    if (!p)
        FATAL("out of memory for a communicator");
    return p;
}

static struct comm *mpi_wrap(MPI_Comm comm, bool is_world)
{
    struct comm *c = zeroed(1, sizeof *c);
    struct mpi_impl *m = zeroed(1, sizeof *m);
    *m = (struct mpi_impl){.comm = comm, .is_world = is_world};
    *c = (struct comm){.ops = &mpi_ops, .impl = m};
    MPI_TRY(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Comm_rank(comm, &c->rank));
    MPI_TRY(MPI_Comm_size(comm, &c->size));
    MPI_Comm node;
    MPI_TRY(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    MPI_TRY(MPI_Comm_rank(node, &c->node_rank));
    MPI_TRY(MPI_Comm_size(node, &c->node_size));
    MPI_TRY(MPI_Comm_free(&node));
    comm_sum_room(c);
    tree_init(&m->tree, c->rank, c->size);
    int n_edges = m->tree.n_levels ? m->tree.level_end[m->tree.n_levels - 1] : 0;
    m->request = zeroed((size_t)n_edges + 1, sizeof *m->request);
    m->count = zeroed((size_t)c->size, sizeof *m->count);
    m->displ = zeroed((size_t)c->size, sizeof *m->displ);
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
    int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &got);
    if (rc != MPI_SUCCESS)
        FAIL(ERR_COMM, "MPI_Init failed with status %d", rc);
    err_on_fatal(mpi_end_job);
    *out = mpi_wrap(MPI_COMM_WORLD, true);
    return ERR_OK;
}
