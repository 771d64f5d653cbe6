/* The reduction tree as a plan, for many sizes, without MPI: every addend arrives once, every chunk
 * ends with its owner, sends meet receives, and a power of two costs log2 P messages a rank.
 * RUN: -n 1 */
#include "check.h"
#include "comm/comm_impl.h"

#include <stdlib.h>

enum { MAX = 70 };

/* have[r][c] holds, as a string of nested pairs, what rank r has summed of chunk c. */
static char *have[MAX][MAX];

static void spell(char *out, size_t cap, int a, int b)
{
    if (b - a == 1) {
        snprintf(out, cap, "%d", a);
        return;
    }
    int l = 1;
    while (l * 2 < b - a)
        l *= 2;
    char x[1000], y[1000];
    spell(x, sizeof x, a, a + l);
    spell(y, sizeof y, a + l, b);
    snprintf(out, cap, "(%s+%s)", x, y);
}

static char *joined(const char *x, const char *y)
{
    /* addition commutes bit by bit, so write the smaller first leaf on the left */
    bool swap = atoi(x + strspn(x, "(")) > atoi(y + strspn(y, "("));
    size_t n = strlen(x) + strlen(y) + 4;
    char *s = malloc(n);
    snprintf(s, n, "(%s+%s)", swap ? y : x, swap ? x : y);
    return s;
}

static int edges_at(const struct tree *t, int level, int *end)
{
    *end = level < t->n_levels ? t->level_end[level] : 0;
    return level > 0 && level < t->n_levels ? t->level_end[level - 1] : 0;
}

/* Levels are joins of subtrees; a rank's level i need not be another's, so match by search. */
static const struct tree_edge *match(const struct tree *t, int from, bool send, const int *chunks,
                                     int n)
{
    int total = t->n_levels ? t->level_end[t->n_levels - 1] : 0;
    for (int e = 0; e < total; e++)
        if (t->edge[e].peer == from && t->edge[e].send == send && t->edge[e].n == n &&
            memcmp(t->chunk + t->edge[e].first, chunks, (size_t)n * sizeof *chunks) == 0)
            return &t->edge[e];
    return NULL;
}

static bool run_rank(struct tree *t, int *level, int r)
{
    int end, begin = edges_at(&t[r], level[r], &end);
    if (level[r] == t[r].n_levels)
        return false;
    /* ready when every sender of this level has itself finished the levels before its send */
    for (int e = begin; e < end; e++) {
        const struct tree_edge *x = &t[r].edge[e];
        if (x->send)
            continue;
        const struct tree_edge *y = match(&t[x->peer], r, true, t[r].chunk + x->first, x->n);
        CHECK(y != NULL);
        if (!y)
            return false;
        int at = (int)(y - t[x->peer].edge), l = 0;
        while (t[x->peer].level_end[l] <= at)
            l++;
        if (level[x->peer] < l)
            return false;
    }
    for (int e = begin; e < end; e++) {
        const struct tree_edge *x = &t[r].edge[e];
        for (int i = 0; !x->send && i < x->n; i++) {
            int c = t[r].chunk[x->first + i];
            char *s = joined(have[r][c], have[x->peer][c]);
            free(have[r][c]);
            have[r][c] = s;
        }
    }
    level[r]++;
    return true;
}

static void simulate(int size)
{
    struct tree t[MAX];
    int level[MAX] = {0};
    for (int r = 0; r < size; r++) {
        tree_init(&t[r], r, size);
        for (int c = 0; c < size; c++) {
            have[r][c] = malloc(16);
            snprintf(have[r][c], 16, "%d", r);
        }
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < size; r++)
            moved |= run_rank(t, level, r);
    }
    char want[2048];
    spell(want, sizeof want, 0, size);
    for (int r = 0; r < size; r++) {
        CHECK(level[r] == t[r].n_levels);
        CHECK_STR(have[r][r], want);
        if ((size & (size - 1)) == 0) {
            int n = t[r].n_levels ? t[r].level_end[t[r].n_levels - 1] : 0;
            CHECK(1 << t[r].n_levels == size && n == 2 * t[r].n_levels);
        }
        for (int c = 0; c < size; c++)
            free(have[r][c]);
    }
    for (int r = 0; r < size; r++)
        tree_clear(&t[r]);
}

int main(void)
{
    TEST ("every size up to 33, and 64, sums each chunk once, in the tree's order, at its owner") {
        for (int size = 1; size <= 33; size++)
            simulate(size);
        simulate(64);
    }
    TEST ("a schedule for 1,000 ranks is small: each chunk is sent once a join at most") {
        struct tree t;
        tree_init(&t, 613, 1000);
        CHECK(t.n_levels == 10 || t.n_levels == 9);
        int n_sent = 0;
        for (int e = 0; e < t.level_end[t.n_levels - 1]; e++)
            n_sent += t.edge[e].send ? t.edge[e].n : 0;
        CHECK(n_sent < 2 * 1000);
        tree_clear(&t);
    }
    return check_done();
}
