/* Collectives over real ranks: sums bit by bit against the tree spelled out, agreement, splits.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 3
 * RUN: -n 4
 * RUN: -n 7 */
#include "check.h"
#include "comm/comm.h"

#include "base/rng.h"
#include <stdlib.h>

enum { BLOCKS = 23, N = BLOCKS * 16 };

static void fill(float *x, int rank)
{
    rng_fill_normal(rng_key_make(7, (uint64_t)rank), 0, N, 0, 1e3f, x);
}

/* S(a, b) of DESIGN 4, the slow and obvious way. */
static void tree_sum(float *out, int a, int b)
{
    if (b - a == 1) {
        fill(out, a);
        return;
    }
    int l = 1;
    while (l * 2 < b - a)
        l *= 2;
    float right[N];
    tree_sum(out, a, a + l);
    tree_sum(right, a + l, b);
    for (int i = 0; i < N; i++)
        out[i] += right[i];
}

static void cuts(int64_t *cut, int size)
{
    for (int r = 0; r <= size; r++)
        cut[r] = BLOCKS * r / size * 16;
}

static void test_reduce(struct comm *c)
{
    int64_t cut[64];
    cuts(cut, c->size);
    float x[N], want[N];
    float *scratch = malloc(N * sizeof *scratch);
    tree_sum(want, 0, c->size);
    TEST("reduce-scatter has the tree's bits in the own part")
    {
        fill(x, c->rank);
        c->ops->reduce_scatter(c, x, cut, cut + 1, scratch);
        CHECK(memcmp(x + cut[c->rank], want + cut[c->rank],
                     (size_t)(cut[c->rank + 1] - cut[c->rank]) * sizeof *x) == 0);
    }
    TEST("all-gather completes it")
    {
        c->ops->all_gather(c, x, cut, sizeof *x);
        CHECK(memcmp(x, want, sizeof x) == 0);
    }
    TEST("the sum in slices of every part has the same bits")
    {
        int64_t begin[64], end[64];
        fill(x, c->rank);
        for (int64_t at = 0; at < N; at += 5) {
            for (int r = 0; r < c->size; r++) {
                begin[r] = cut[r] + at < cut[r + 1] ? cut[r] + at : cut[r + 1];
                end[r] = begin[r] + 5 < cut[r + 1] ? begin[r] + 5 : cut[r + 1];
            }
            c->ops->reduce_scatter(c, x, begin, end, scratch);
        }
        CHECK(memcmp(x + cut[c->rank], want + cut[c->rank],
                     (size_t)(cut[c->rank + 1] - cut[c->rank]) * sizeof *x) == 0);
    }
    TEST("parts may be empty")
    {
        int64_t all_last[64] = {0};
        all_last[c->size] = N;
        float *more = malloc(N * sizeof *more);
        fill(x, c->rank);
        c->ops->reduce_scatter(c, x, all_last, all_last + 1, more);
        if (c->rank == c->size - 1)
            CHECK(memcmp(x, want, sizeof x) == 0);
        free(more);
    }
    free(scratch);
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
    TEST("nobody fails, nobody stops")
    {
        CHECK(agreed(c, -1, ERR_DATA) == ERR_OK);
    }
    TEST("one rank's status and words reach all")
    {
        int last = c->size - 1;
        CHECK(agreed(c, last, ERR_DATA) == ERR_DATA);
        char want[32];
        snprintf(want, sizeof want, "rank %d says no", last);
        CHECK_STR(err_text(), want);
    }
    TEST("the worst status wins, then the lowest rank")
    {
        int rc = c->rank == 0 ? err_set(ERR_USAGE, "small") : err_set(ERR_COMM, "rank %d", c->rank);
        rc = comm_agree(c, rc);
        CHECK(rc == (c->size == 1 ? ERR_USAGE : ERR_COMM));
        CHECK_STR(err_text(), c->size == 1 ? "small" : "rank 1");
    }
    TEST("equal values are equal, others are found")
    {
        CHECK(comm_same(c, 0xfedcba9876543210u, "value") == ERR_OK);
        CHECK(comm_same(c, c->rank == c->size - 1 ? 2 : 0, "plan") ==
              (c->size == 1 ? ERR_OK : ERR_INTERNAL));
    }
}

static void test_small(struct comm *c)
{
    TEST("integer sums and maxima")
    {
        int64_t v[2] = {c->rank + 1, -c->rank}, w[2] = {c->rank, -c->rank};
        c->ops->sum_i64(c, v, 2);
        c->ops->max_i64(c, w, 2);
        CHECK(v[0] == c->size * (c->size + 1) / 2 && v[1] == -c->size * (c->size - 1) / 2);
        CHECK(w[0] == c->size - 1 && w[1] == 0);
    }
    TEST("bytes of rank 0")
    {
        char own[] = "the job file", *bytes = c->rank == 0 ? own : NULL;
        size_t n = c->rank == 0 ? sizeof own : 0;
        comm_share_bytes(c, &bytes, &n);
        CHECK(n == sizeof own);
        CHECK_STR(bytes, "the job file");
        if (c->rank != 0)
            free(bytes);
    }
    TEST("a split has its own ranks and sums")
    {
        struct comm *part = comm_split(c, c->rank % 2, c->rank);
        CHECK(part->rank == c->rank / 2);
        int64_t v = 1;
        part->ops->sum_i64(part, &v, 1);
        CHECK(v == part->size);
        CHECK(part->size == (c->size + (c->rank % 2 == 0)) / 2);
        comm_close(&part);
        CHECK(part == NULL);
    }
    TEST("ranks of one machine are one node")
    {
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
    test_reduce(c);
    test_agree(c);
    test_small(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
