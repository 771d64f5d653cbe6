/* Collectives over real ranks: sums bit by bit against the tree spelled out, agreement, splits.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 3
 * RUN: -n 4
 * RUN: -n 7
 * RUN: -n 8 */
#include "check.h"
#include "comm/node.h"

#include "base/rng.h"
#include "tensor/half.h"
#include <stdlib.h>

enum { BLOCKS = 23, N = BLOCKS * 16 };

static void fill(float *x, int rank)
{
    rng_fill_normal(rng_key_make(7, (uint64_t)rank), 0, N, 0, 1e3f, x);
}

static float rounded(enum dtype t, float x)
{
    return t == DTYPE_F32 ? x : half_round(t, x);
}

/* S(a, b) of DESIGN 4, the slow and obvious way; addends and sums rounded to t. */
static void tree_sum_in(enum dtype t, float *out, int a, int b)
{
    if (b - a == 1) {
        fill(out, a);
        for (int i = 0; i < N; i++)
            out[i] = rounded(t, out[i]);
        return;
    }
    int l = 1;
    while (l * 2 < b - a)
        l *= 2;
    float right[N];
    tree_sum_in(t, out, a, a + l);
    tree_sum_in(t, right, a + l, b);
    for (int i = 0; i < N; i++)
        out[i] = rounded(t, out[i] + right[i]);
}

static void tree_sum(float *out, int a, int b)
{
    tree_sum_in(DTYPE_F32, out, a, b);
}

static void cuts(int64_t *cut, int size)
{
    for (int r = 0; r <= size; r++)
        cut[r] = BLOCKS * r / size * 16;
}

static bool own_equals(const struct comm *c, const float *x, const float *want, const int64_t *cut)
{
    int64_t begin = cut[c->rank], end = cut[c->rank + 1];
    return memcmp(x + begin, want + begin, (size_t)(end - begin) * sizeof *x) == 0;
}

/* Gathers and sums of N floats at x, in whatever memory that is. */
static void test_reduce(struct comm *c, float *x)
{
    int64_t cut[64], all_last[64] = {0};
    cuts(cut, c->size);
    all_last[c->size] = N;
    float want[N], scratch[N];
    tree_sum(want, 0, c->size);
    TEST ("reduce-scatter has the tree's bits in the own part") {
        fill(x, c->rank);
        c->ops->reduce_scatter(c, x, cut, N, DTYPE_F32, scratch);
        CHECK(own_equals(c, x, want, cut));
    }
    TEST ("all-gather completes it") {
        c->ops->all_gather(c, x, cut, sizeof *x);
        CHECK(memcmp(x, want, sizeof want) == 0);
    }
    TEST ("the sum in slices of every part has the same bits") {
        fill(x, c->rank);
        c->ops->reduce_scatter(c, x, cut, 5, DTYPE_F32, scratch);
        CHECK(own_equals(c, x, want, cut));
    }
    for (int t = 0; t < 2 && c->size > 1; t++)
        TEST (t ? "sums in fp16 are rounded at every node of the tree"
                : "sums in bf16 are rounded at every node of the tree") {
            enum dtype dtype = t ? DTYPE_F16 : DTYPE_BF16;
            float low[N];
            tree_sum_in(dtype, low, 0, c->size);
            fill(x, c->rank);
            c->ops->reduce_scatter(c, x, cut, 11, dtype, scratch);
            CHECK(own_equals(c, x, low, cut));
        }
    TEST ("parts may be empty") {
        fill(x, c->rank);
        c->ops->reduce_scatter(c, x, all_last, N, DTYPE_F32, scratch);
        CHECK(own_equals(c, x, want, all_last));
        c->ops->all_gather(c, x, all_last, sizeof *x);
        CHECK(memcmp(x, want, sizeof want) == 0);
    }
}

/* Several tasks under way at once, while the opener's thread uses the communicator itself. */
static void test_tasks(struct comm *c, float *room)
{
    enum { TASKS = 6 };
    int64_t cut[64];
    cuts(cut, c->size);
    float want[N], scratch[N];
    struct comm_task t[TASKS];
    tree_sum(want, 0, c->size);
    TEST ("sums and gathers in the background, in order, beside others in the foreground") {
        for (int i = 0; i < TASKS; i++) {
            float *x = room + i / 2 * N;
            if (i % 2 == 0)
                fill(x, c->rank);
            t[i] = (struct comm_task){.what = i % 2 ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER,
                                      .buf = x,
                                      .cut = cut,
                                      .elem_bytes = sizeof *x,
                                      .slice_elems = 7,
                                      .scratch = scratch};
            comm_start(c, &t[i]);
            int64_t one = 1;
            c->ops->sum_i64(c, &one, 1);
            CHECK(one == c->size);
        }
        for (int i = 0; i < TASKS; i++)
            comm_wait(&t[i]);
        for (int i = 0; i < TASKS / 2; i++)
            CHECK(memcmp(room + i * N, want, sizeof want) == 0);
        CHECK(!comm_in_background(c));
    }
}

/* Does no node have ranks of several groups of k neighbours? */
static bool groups_hold_nodes(struct comm *world, int node, int k)
{
    int64_t node_of[64] = {0};
    bool hold = true;
    node_of[world->rank] = node;
    world->ops->sum_i64(world, node_of, world->size);
    for (int a = 0; a < world->size; a++)
        for (int b = 0; b < world->size; b++)
            hold &= node_of[a] != node_of[b] || a / k == b / k;
    return hold;
}

/* Groups of k neighbours over the memory of all. */
static void test_groups(struct comm *world, int node, struct node *n, int k)
{
    struct comm *below = comm_split(world, world->rank / k, world->rank);
    struct comm *c = comm_share_node(below, n);
    int64_t cut[64];
    cuts(cut, k);
    TEST ("groups of neighbours: ranks of their own") {
        CHECK(c->size == k && c->rank == world->rank % k);
    }
    test_reduce(c, node_own(n));
    test_tasks(c, node_own(n));
    if (groups_hold_nodes(world, node, k))
        TEST ("each group gathers into its nodes' one part") {
            float *x = node_shared(n);
            for (int round = 0; round < 20; round++) {
                float first = (float)(world->rank / k + round);
                for (int64_t i = cut[c->rank]; i < cut[c->rank + 1]; i++)
                    x[i] = first + (float)i;
                c->ops->all_gather(c, x, cut, sizeof *x);
                for (int64_t i = 0; i < N; i++)
                    CHECK(x[i] == first + (float)i);
                node_await(n, node_mark(n));
            }
        }
    comm_close(&c);
    comm_close(&below);
}

static void use_memory(struct comm *world, int node, const char *what)
{
    struct comm *c;
    struct node *n;
    int64_t cut[64];
    cuts(cut, world->size);
    TEST (what) {
        int rc = comm_open_node(world, &node, N * sizeof(float), 3 * N * sizeof(float), &c, &n);
        CHECK(rc == ERR_OK);
        if (rc != ERR_OK) {
            printf("# %s\n", err_text());
            return;
        }
        CHECK(c->rank == world->rank && c->size == world->size);
    }
    test_reduce(c, node_own(n));
    test_tasks(c, node_own(n));
    float private[N];
    test_reduce(c, private);
    TEST ("the node's one part is written by all, and again when all have read it") {
        float *x = node_shared(n);
        for (int round = 0; round < 20; round++) {
            for (int64_t i = cut[c->rank]; i < cut[c->rank + 1]; i++)
                x[i] = (float)(round * N + i);
            c->ops->all_gather(c, x, cut, sizeof *x);
            for (int64_t i = 0; i < N; i++)
                CHECK(x[i] == (float)(round * N + i));
            node_await(n, node_mark(n));
        }
    }
    TEST ("what the kernel counts of the segment is what was asked for, and some pages") {
        size_t bytes = node_bytes_used(n), least = 4 * N * sizeof(float);
        CHECK(bytes == 0 || (bytes >= least && bytes < (size_t)c->size * 4 * least + (1 << 16)));
        int64_t any = bytes > 0;
        c->ops->max_i64(c, &any, 1);
        CHECK(any == 1);
    }
    for (int k = 2; k < world->size; k *= 2)
        if (world->size % k == 0)
            test_groups(world, node, n, k);
    test_reduce(c, node_own(n)); /* whose counters the groups have raised */
    comm_close(&c);
    CHECK(c == NULL);
}

static void test_node(struct comm *c)
{
    if (c->size == 1)
        return;
    use_memory(c, 0, "node memory of one node");
    use_memory(c, c->rank / 2, "nodes of two neighbours");
    use_memory(c, c->rank / 3, "nodes of three: no subtrees");
    use_memory(c, c->rank % 2, "nodes that take turns: no neighbours");
    use_memory(c, c->rank, "a node for each rank");
    TEST ("more node memory than there is: an error on every rank") {
        struct comm *x;
        struct node *n;
        CHECK(comm_open_node(c, NULL, 4096, (size_t)1 << 50, &x, &n) == ERR_RESOURCE);
        CHECK(x == NULL && n == NULL);
        CHECK(strstr(err_text(), "node memory") != NULL);
    }
}

static int fail_on(struct comm *c, int rank, int code)
{
    if (c->rank == rank)
        FAIL(code, "rank %d says no", rank);
    return ERR_OK;
}

static int agreed(struct comm *c, int rank, int code)
{
    TRY_ALL(c, fail_on(c, rank, code));
    return ERR_OK;
}

static void test_agree(struct comm *c)
{
    TEST ("nobody fails, nobody stops") {
        CHECK(agreed(c, -1, ERR_DATA) == ERR_OK);
    }
    TEST ("one rank's status and words reach all") {
        int last = c->size - 1;
        CHECK(agreed(c, last, ERR_DATA) == ERR_DATA);
        char want[32];
        snprintf(want, sizeof want, "rank %d says no", last);
        CHECK_STR(err_text(), want);
    }
    TEST ("the worst status wins, then the lowest rank") {
        int rc = c->rank == 0 ? err_set(ERR_USAGE, "small") : err_set(ERR_COMM, "rank %d", c->rank);
        rc = comm_agree(c, rc);
        CHECK(rc == (c->size == 1 ? ERR_USAGE : ERR_COMM));
        CHECK_STR(err_text(), c->size == 1 ? "small" : "rank 1");
    }
    TEST ("equal values are equal, others are found") {
        CHECK(comm_same(c, 0xfedcba9876543210u, "value") == ERR_OK);
        CHECK(comm_same(c, c->rank == c->size - 1 ? 2 : 0, "plan") ==
              (c->size == 1 ? ERR_OK : ERR_INTERNAL));
    }
}

static void test_small(struct comm *c)
{
    TEST ("integer sums and maxima") {
        int64_t v[2] = {c->rank + 1, -c->rank}, w[2] = {c->rank, -c->rank};
        c->ops->sum_i64(c, v, 2);
        c->ops->max_i64(c, w, 2);
        CHECK(v[0] == c->size * (c->size + 1) / 2 && v[1] == -c->size * (c->size - 1) / 2);
        CHECK(w[0] == c->size - 1 && w[1] == 0);
    }
    TEST ("bytes of rank 0") {
        char own[] = "the job file", *bytes = c->rank == 0 ? own : NULL;
        size_t n = c->rank == 0 ? sizeof own : 0;
        comm_share_bytes(c, &bytes, &n);
        CHECK(n == sizeof own);
        CHECK_STR(bytes, "the job file");
        if (c->rank != 0)
            free(bytes);
    }
    TEST ("a split has its own ranks and sums") {
        struct comm *part = comm_split(c, c->rank % 2, c->rank);
        CHECK(part->rank == c->rank / 2);
        int64_t v = 1;
        part->ops->sum_i64(part, &v, 1);
        CHECK(v == part->size);
        CHECK(part->size == (c->size + (c->rank % 2 == 0)) / 2);
        comm_close(&part);
        CHECK(part == NULL);
    }
    TEST ("ranks of one machine are one node") {
        CHECK(c->node_size == c->size && c->node_rank == c->rank);
    }
}

int main(void)
{
    struct comm *c;
    if (comm_open_world(&c) != ERR_OK) {
        printf("Bail out! %s\n", err_text());
        return 1;
    }
    check_rank = c->rank;
    float own[3 * N];
    test_reduce(c, own);
    test_tasks(c, own);
    test_node(c);
    test_agree(c);
    test_small(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
