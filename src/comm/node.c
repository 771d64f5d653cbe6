/* The table over node memory. */
#include "comm/node_impl.h"

#include "tensor/half.h"
#include <stdlib.h>
#include <string.h>

struct node {
    struct comm *below; /* borrowed */
    struct node *owner; /* borrowed, or itself: whose memory and counters these are */
    struct node_memory memory;
    int color;                 /* which node it is */
    int *local;                /* owned: (size of below) rank in the node, -1: on another one */
    int *source;               /* owned: (size) rank of the node that has a rank's part */
    struct exchange others;    /* parts that travel between nodes */
    bool is_whole;             /* all ranks are on this node */
    int begin, end, n_levels;  /* the largest subtree around this rank that is all in the node */
    uint32_t n_tasks, n_marks; /* the owner's */
};

static struct node *impl_of(const struct comm *c)
{
    return c->impl;
}

static const struct node_memory *memory_of(const struct node *n)
{
    return &n->owner->memory;
}

/* Everybody in the node has come as far as this rank has. */
static void raise_tasks(struct node *n)
{
    const struct node_memory *m = memory_of(n);
    n->owner->n_tasks++;
    counter_raise(&m->progress[m->rank].tasks);
}

static void await_tasks(struct node *n)
{
    const struct node_memory *m = memory_of(n);
    for (int r = 0; r < m->size; r++)
        counter_await(&m->progress[r].tasks, n->owner->n_tasks);
}

uint32_t node_mark(struct node *n)
{
    counter_raise(&n->memory.progress[n->memory.rank].marks);
    return ++n->n_marks;
}

void node_await(struct node *n, uint32_t mark)
{
    for (int r = 0; r < n->memory.size; r++)
        counter_await(&n->memory.progress[r].marks, mark);
}

void *node_shared(const struct node *n)
{
    return memory_of(n)->base + memory_of(n)->head_bytes;
}

void *node_own(const struct node *n)
{
    return node_memory_own(memory_of(n), memory_of(n)->rank);
}

size_t node_bytes_used(const struct node *n)
{
    return node_memory_used(&n->memory);
}

static bool lies_in(const void *p, const void *base, size_t n_bytes)
{
    uintptr_t at = (uintptr_t)p, begin = (uintptr_t)base;
    return at >= begin && at < begin + n_bytes;
}

static bool is_shared(const struct node *n, const void *p)
{
    return lies_in(p, node_shared(n), memory_of(n)->shared_bytes);
}

static bool is_own(const struct node *n, const void *p)
{
    return lies_in(p, node_own(n), memory_of(n)->own_bytes);
}

/* Where rank local of the node has what this rank has at own. */
static char *peer(const struct node *n, int local, const void *own)
{
    size_t at = (size_t)((const char *)own - (const char *)node_own(n));
    return node_memory_own(memory_of(n), local) + at;
}

/* Once for all: own parts arrive from this node and the others, and that is all. */
static void gather_shared(struct node *n, void *buf, const int64_t *cut, size_t elem_bytes)
{
    if (!n->is_whole)
        mpi_exchange(n->below, buf, cut, elem_bytes, &n->others);
    raise_tasks(n);
    await_tasks(n);
}

/* Each for itself: copy from the neighbour that has a part. */
static void gather_own(struct node *n, char *buf, const int64_t *cut, size_t elem_bytes)
{
    if (!n->is_whole)
        mpi_exchange(n->below, buf, cut, elem_bytes, &n->others);
    raise_tasks(n);
    await_tasks(n);
    for (int r = 0; r < n->below->size; r++) {
        if (n->source[r] == memory_of(n)->rank)
            continue;
        size_t begin = (size_t)cut[r] * elem_bytes, end = (size_t)cut[r + 1] * elem_bytes;
        memcpy(buf + begin, peer(n, n->source[r], buf) + begin, end - begin);
    }
    raise_tasks(n);
    await_tasks(n); /* nobody reads here any more */
}

static void node_all_gather(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    struct node *n = impl_of(c);
    if (is_shared(n, buf))
        gather_shared(n, buf, cut, elem_bytes);
    else if (is_own(n, buf))
        gather_own(n, buf, cut, elem_bytes);
    else
        n->below->ops->all_gather(n->below, buf, cut, elem_bytes);
}

enum { PIECE = 1024 };

/* out = S(a, b) of n_elem elements that begin at x in every rank's own part. */
static void tree_sum(const struct node *n, float *out, const float *x, int64_t n_elem, int a, int b,
                     enum dtype dtype)
{
    int m = tree_middle(a, b);
    float room[PIECE];
    const float *left = out, *right = room;
    if (m - a == 1)
        left = (const float *)(void *)peer(n, n->local[a], x);
    else
        tree_sum(n, out, x, n_elem, a, m, dtype);
    if (b - m == 1)
        right = (const float *)(void *)peer(n, n->local[m], x);
    else
        tree_sum(n, room, x, n_elem, m, b, dtype);
    if (dtype != DTYPE_F32)
        half_sum_array(dtype, out, left, right, n_elem);
    else
        for (int64_t i = 0; i < n_elem; i++)
            out[i] = left[i] + right[i];
}

/* The parts whose partial sums this rank holds for its subtree: nobody else reads or writes them
 * here. */
static void sum_subtree(const struct node *n, float *buf, const int64_t *cut, enum dtype dtype)
{
    for (int p = 0; p < n->below->size; p++) {
        if (tree_holder(p, n->begin, n->end) != n->below->rank)
            continue;
        for (int64_t at = cut[p]; at < cut[p + 1]; at += PIECE) {
            float sum[PIECE];
            int64_t n_elem = cut[p + 1] - at < PIECE ? cut[p + 1] - at : PIECE;
            tree_sum(n, sum, buf + at, n_elem, n->begin, n->end, dtype);
            memcpy(buf + at, sum, (size_t)n_elem * sizeof *buf);
        }
    }
}

static void node_reduce_scatter(struct comm *c, float *buf, const int64_t *cut, int64_t slice_elems,
                                enum dtype dtype, float *scratch)
{
    struct node *n = impl_of(c);
    if (!is_own(n, buf)) {
        n->below->ops->reduce_scatter(n->below, buf, cut, slice_elems, dtype, scratch);
        return;
    }
    raise_tasks(n);
    await_tasks(n);
    if (n->end - n->begin > 1)
        sum_subtree(n, buf, cut, dtype);
    if (!n->is_whole)
        mpi_reduce_levels(n->below, n->n_levels, buf, cut, slice_elems, dtype, scratch);
    raise_tasks(n);
    await_tasks(n); /* nobody reads here any more */
}

static void node_gather(struct comm *c, const void *own, int64_t n, void *all, const int64_t *cut,
                        size_t elem_bytes)
{
    struct comm *b = impl_of(c)->below;
    b->ops->gather(b, own, n, all, cut, elem_bytes);
}

static void node_broadcast(struct comm *c, void *buf, size_t n_bytes, int root)
{
    struct comm *b = impl_of(c)->below;
    b->ops->broadcast(b, buf, n_bytes, root);
}

static void node_sum_i64(struct comm *c, int64_t *v, int n)
{
    struct comm *b = impl_of(c)->below;
    b->ops->sum_i64(b, v, n);
}

static void node_max_i64(struct comm *c, int64_t *v, int n)
{
    struct comm *b = impl_of(c)->below;
    b->ops->max_i64(b, v, n);
}

static void node_barrier(struct comm *c)
{
    struct comm *b = impl_of(c)->below;
    b->ops->barrier(b);
}

static struct comm *node_split(struct comm *c, int color, int key)
{
    return comm_split(impl_of(c)->below, color, key);
}

static void free_node(struct node *n)
{
    if (n->owner == n)
        node_memory_close(&n->memory);
    free(n->local);
    free(n->source);
    free(n->others.to);
    free(n->others.from);
    free(n);
}

static void node_close(struct comm **c)
{
    struct node *n = impl_of(*c);
    free_node(n);
    free((*c)->sum_room);
    free(*c);
    *c = NULL;
}

static const struct comm_ops node_ops = {
    .name = "node",
    .all_gather = node_all_gather,
    .reduce_scatter = node_reduce_scatter,
    .wait = task_wait,
    .gather = node_gather,
    .broadcast = node_broadcast,
    .sum_i64 = node_sum_i64,
    .max_i64 = node_max_i64,
    .barrier = node_barrier,
    .split = node_split,
    .close = node_close,
};

/* Rank from's part goes to one rank of each other node: neighbours take turns. */
static int receiver(const int64_t *node_of, int size, int from, int64_t node)
{
    int place = 0, n_there = 0;
    for (int r = 0; r < size; r++) {
        place += r < from && node_of[r] == node_of[from];
        n_there += node_of[r] == node;
    }
    place %= n_there;
    for (int r = 0; r < size; r++)
        if (node_of[r] == node && place-- == 0)
            return r;
    FATAL("a node without ranks");
}

/* Ranks of the node count from 0, but for those that have a number in the owner's memory. */
static void number_ranks(struct node *n, const int64_t *node_of)
{
    int size = n->below->size, rank = n->below->rank, next = 0;
    int64_t *local_of = comm_zeroed((size_t)size, sizeof *local_of);
    local_of[rank] = n->owner->memory.rank;
    if (n->owner != n)
        n->below->ops->sum_i64(n->below, local_of, size);
    n->is_whole = true;
    for (int r = 0; r < size; r++) {
        bool here = node_of[r] == node_of[rank];
        n->local[r] = !here ? -1 : n->owner == n ? next++ : (int)local_of[r];
        n->is_whole &= here;
    }
    free(local_of);
}

static void plan_exchange(struct node *n, const int64_t *node_of)
{
    int size = n->below->size, rank = n->below->rank;
    for (int r = 0; r < size; r++) {
        bool first = true; /* of its node */
        for (int q = 0; q < r; q++)
            first &= node_of[q] != node_of[r];
        if (first && n->local[r] < 0)
            n->others.to[n->others.n_to++] = receiver(node_of, size, rank, node_of[r]);
        int at = n->local[r] >= 0 ? r : receiver(node_of, size, r, node_of[rank]);
        n->source[r] = n->local[at];
        if (at == rank && r != rank)
            n->others.from[n->others.n_from++] = r;
    }
}

static void find_subtree(struct node *n)
{
    int rank = n->below->rank;
    n->begin = 0;
    n->end = n->below->size;
    for (;;) {
        bool inside = true;
        for (int r = n->begin; r < n->end; r++)
            inside &= n->local[r] >= 0;
        if (inside)
            break;
        int m = tree_middle(n->begin, n->end);
        if (rank < m)
            n->end = m;
        else
            n->begin = m;
    }
    for (int a = n->begin, b = n->end; b - a > 1; n->n_levels++) {
        int m = tree_middle(a, b);
        if (rank < m)
            b = m;
        else
            a = m;
    }
}

static struct node *make_node(struct comm *c, int color, struct node *owner)
{
    size_t size = (size_t)c->size;
    struct node *n = comm_zeroed(1, sizeof *n);
    *n = (struct node){.below = c, .owner = owner ? owner : n, .memory.fd = -1, .color = color};
    n->local = comm_zeroed(size, sizeof *n->local);
    n->source = comm_zeroed(size, sizeof *n->source);
    n->others.to = comm_zeroed(size, sizeof *n->others.to);
    n->others.from = comm_zeroed(size, sizeof *n->others.from);
    int64_t *node_of = comm_zeroed(size, sizeof *node_of);
    node_of[c->rank] = color;
    c->ops->sum_i64(c, node_of, c->size);
    number_ranks(n, node_of);
    plan_exchange(n, node_of);
    find_subtree(n);
    free(node_of);
    return n;
}

static struct comm *wrap(struct comm *c, struct node *n)
{
    struct comm *x = comm_zeroed(1, sizeof *x);
    *x = *c;
    x->ops = &node_ops;
    x->impl = n;
    comm_sum_room(x);
    return x;
}

int comm_open_node(struct comm *c, const int *node, size_t shared_bytes, size_t own_bytes,
                   struct comm **out, struct node **memory)
{
    REQUIRE(c->size > 1);
    *out = NULL;
    *memory = NULL;
    int color = node ? *node : c->node;
    struct node *n = make_node(c, color, NULL);
    struct comm *local = comm_split(c, color, c->rank);
    int rc = node_memory_open(&n->memory, local, shared_bytes, own_bytes);
    comm_close(&local);
    rc = comm_agree(c, rc);
    if (rc != ERR_OK) {
        free_node(n);
        return rc;
    }
    *out = wrap(c, n);
    *memory = n;
    return ERR_OK;
}

struct comm *comm_share_node(struct comm *c, struct node *memory)
{
    REQUIRE(c->size > 1);
    return wrap(c, make_node(c, memory->color, memory));
}
