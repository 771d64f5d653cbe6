/* Agreement and other helpers over the table, and the communicator of one rank. */
#include "comm/comm.h"

#include "comm/comm_impl.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void self_all_gather(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    (void)c;
    (void)buf;
    (void)cut;
    (void)elem_bytes;
}

static void self_reduce_scatter(struct comm *c, float *buf, const int64_t *cut, int64_t slice_elems,
                                enum dtype dtype, float *scratch)
{
    (void)c;
    (void)buf;
    (void)cut;
    (void)slice_elems;
    (void)dtype;
    (void)scratch;
}

static void self_gather(struct comm *c, const void *own, int64_t n, void *all, const int64_t *cut,
                        size_t elem_bytes)
{
    (void)c;
    if (n > 0)
        memcpy((char *)all + (size_t)cut[0] * elem_bytes, own, (size_t)n * elem_bytes);
}

static void self_broadcast(struct comm *c, void *buf, size_t n_bytes, int root)
{
    (void)c;
    (void)buf;
    (void)n_bytes;
    REQUIRE(root == 0);
}

static void self_i64(struct comm *c, int64_t *v, int n)
{
    (void)c;
    (void)v;
    (void)n;
}

static void self_barrier(struct comm *c)
{
    (void)c;
}

static struct comm *self_split(struct comm *c, int color, int key)
{
    (void)c;
    (void)color;
    (void)key;
    return comm_self();
}

static void self_close(struct comm **c)
{
    free(*c);
    *c = NULL;
}

static const struct comm_ops self_ops = {
    .name = "self",
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .wait = task_wait,
    .gather = self_gather,
    .broadcast = self_broadcast,
    .sum_i64 = self_i64,
    .max_i64 = self_i64,
    .barrier = self_barrier,
    .split = self_split,
    .close = self_close,
};

void *comm_zeroed(size_t n, size_t item_bytes)
{
    void *p = calloc(n, item_bytes);
    if (!p)
        FATAL("out of memory for a communicator");
    return p;
}

struct comm *comm_self(void)
{
    struct comm *c = comm_zeroed(1, sizeof *c);
    *c = (struct comm){.ops = &self_ops, .size = 1, .node_size = 1};
    return c;
}

static int env_count(const char *name)
{
    const char *v = getenv(name);
    return v ? atoi(v) : 0;
}

int comm_launched(int *n_ranks)
{
    int n = env_count("OMPI_COMM_WORLD_SIZE");
    if (n < 1)
        n = env_count("PMI_SIZE");
    if (n < 1 && getenv("SLURM_PROCID")) {
        /* in a batch script SLURM_PROCID is set too, but there is no step of several tasks */
        int tasks = env_count("SLURM_STEP_NUM_TASKS");
        if (tasks > 1 && !getenv("PMIX_RANK") && !getenv("PMI_RANK"))
            FAIL(ERR_USAGE,
                 "srun started %d tasks without PMIx, so each would train alone: "
                 "say srun --mpi=pmix, or mpirun inside the batch script",
                 tasks);
        n = tasks;
    }
    *n_ranks = n < 1 ? 1 : n;
    return ERR_OK;
}

int comm_open_world(struct comm **out)
{
    int n;
    TRY(comm_launched(&n));
    if (n > 1)
        return comm_mpi_open(out);
    *out = comm_self();
    return ERR_OK;
}

struct comm *comm_split(struct comm *c, int color, int key)
{
    return c->ops->split(c, color, key);
}

void comm_close(struct comm **c)
{
    if (*c)
        (*c)->ops->close(c);
}

int comm_agree(struct comm *c, int rc)
{
    if (c->size == 1)
        return rc;
    /* one number: the worst status first, then the lowest rank */
    int64_t v = (int64_t)rc << 32 | (int64_t)(INT32_MAX - c->rank);
    c->ops->max_i64(c, &v, 1);
    int worst = (int)(v >> 32);
    if (worst != ERR_OK)
        c->ops->broadcast(c, err_text_buffer(), ERR_TEXT_BYTES, (int)(INT32_MAX - (v & INT32_MAX)));
    return worst;
}

int comm_same(struct comm *c, uint64_t value, const char *what)
{
    int64_t lo = (int64_t)(value >> 1), v[2] = {lo, -lo};
    c->ops->max_i64(c, v, 2);
    if (v[0] != -v[1])
        FAIL(ERR_INTERNAL, "the ranks do not have the same %s", what);
    return ERR_OK;
}

enum { MOST_SUMS = 4 };

void comm_sum_room(struct comm *c)
{
    c->sum_room = comm_zeroed((size_t)c->size * MOST_SUMS, sizeof *c->sum_room);
}

/* Every rank's bits beside the zeros of the others: an integer sum gathers them. */
void comm_sum_f64(struct comm *c, double *v, int n)
{
    if (c->size == 1)
        return;
    REQUIRE(n <= MOST_SUMS);
    memset(c->sum_room, 0, (size_t)(c->size * n) * sizeof *c->sum_room);
    memcpy(c->sum_room + c->rank * n, v, (size_t)n * sizeof *v);
    c->ops->sum_i64(c, c->sum_room, c->size * n);
    for (int i = 0; i < n; i++) {
        v[i] = 0;
        for (int r = 0; r < c->size; r++) {
            double x;
            memcpy(&x, &c->sum_room[r * n + i], sizeof x);
            v[i] += x;
        }
    }
}

void comm_share_bytes(struct comm *c, char **bytes, size_t *n_bytes)
{
    int64_t n = c->rank == 0 ? (int64_t)*n_bytes : 0;
    c->ops->broadcast(c, &n, sizeof n, 0);
    if (c->rank != 0) {
        *bytes = malloc((size_t)n + 1);
        if (!*bytes)
            FATAL("out of memory for %lld bytes", (long long)n);
        (*bytes)[n] = 0;
        *n_bytes = (size_t)n;
    }
    c->ops->broadcast(c, *bytes, (size_t)n, 0);
}

void comm_print(const struct comm *c, const char *fmt, ...)
{
    if (c->rank != 0)
        return;
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}
