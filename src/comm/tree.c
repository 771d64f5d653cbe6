/* The fixed binary tree over the rank index, S(a,b) = S(a,m) + S(m,b) with m = a + the largest
 * power of two below b - a, as an exchange: every subtree keeps the whole vector's partial sum
 * spread over its ranks by chunks, and two subtrees join by sending each chunk to one of its two
 * holders.  For a power of two this is recursive halving, neighbours first: log2 P messages. */
#include "comm/comm_impl.h"

#include <stdlib.h>
#include <string.h>

static int half(int n)
{
    int l = 1;
    while (l * 2 < n)
        l *= 2;
    return l;
}

int tree_middle(int a, int b)
{
    return a + half(b - a);
}

/* Does the left part of [a, b) keep chunk c?  Inside [a, b) the owner's side does, so that the last
 * join leaves every chunk with its owner; outside the chunks are dealt out evenly. */
static bool goes_left(int c, int a, int b)
{
    int place = c >= a && c < b ? c - a : c % (b - a);
    return place < half(b - a);
}

int tree_holder(int c, int a, int b)
{
    while (b - a > 1) {
        int m = tree_middle(a, b);
        if (goes_left(c, a, b))
            b = m;
        else
            a = m;
    }
    return a;
}

struct builder {
    struct tree *t;
    int rank, size, n_edges, n_chunks;
};

static void *grow(void *p, int n, size_t item_bytes)
{
    p = realloc(p, (size_t)n * item_bytes);
    if (!p)
        FATAL("out of memory for a reduction tree");
    return p;
}

static void add_chunk(struct builder *u, int level_begin, int peer, bool send, int c)
{
    struct tree *t = u->t;
    struct tree_edge *e = NULL;
    for (int i = level_begin; i < u->n_edges; i++)
        if (t->edge[i].peer == peer && t->edge[i].send == send)
            e = &t->edge[i];
    if (!e) {
        t->edge = grow(t->edge, u->n_edges + 1, sizeof *t->edge);
        e = &t->edge[u->n_edges++];
        *e = (struct tree_edge){.peer = peer, .send = send, .first = u->n_chunks};
    }
    t->chunk = grow(t->chunk, u->n_chunks + 1, sizeof *t->chunk);
    /* keep an edge's chunks together: those of later edges move up by one */
    int at = e->first + e->n;
    memmove(t->chunk + at + 1, t->chunk + at, (size_t)(u->n_chunks - at) * sizeof *t->chunk);
    t->chunk[at] = c;
    for (int i = level_begin; i < u->n_edges; i++)
        if (&t->edge[i] != e && t->edge[i].first >= at)
            t->edge[i].first++;
    e->n++;
    u->n_chunks++;
}

static void join(struct builder *u, int a, int b)
{
    if (b - a == 1)
        return;
    int m = tree_middle(a, b);
    if (u->rank < m)
        join(u, a, m);
    else
        join(u, m, b);
    int level_begin = u->n_edges;
    for (int c = 0; c < u->size; c++) {
        int left = tree_holder(c, a, m), right = tree_holder(c, m, b);
        bool to_left = goes_left(c, a, b);
        int winner = to_left ? left : right, loser = to_left ? right : left;
        if (u->rank == loser)
            add_chunk(u, level_begin, winner, true, c);
        else if (u->rank == winner)
            add_chunk(u, level_begin, loser, false, c);
    }
    struct tree *t = u->t;
    t->level_end = grow(t->level_end, t->n_levels + 1, sizeof *t->level_end);
    t->level_end[t->n_levels++] = u->n_edges;
}

void tree_init(struct tree *t, int rank, int size)
{
    *t = (struct tree){0};
    struct builder u = {.t = t, .rank = rank, .size = size};
    join(&u, 0, size);
}

void tree_clear(struct tree *t)
{
    free(t->edge);
    free(t->chunk);
    free(t->level_end);
    *t = (struct tree){0};
}
