/* Where activations may lie in the memory of gradients. */
#include "parallel/lend.h"

#include <stdlib.h>

bool lend_can(const struct policy *row, const struct shard_conf *conf, int64_t accumulation)
{
    return !row->shard_grads && !row->averages && !conf->sync_each_batch && !conf->power_sgd.on &&
           !conf->offload.dir && accumulation == 1;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t round_up(size_t n)
{
    return (n + STACK_ALIGN - 1) / STACK_ALIGN * STACK_ALIGN;
}

static size_t bytes_from(const struct plan *p, int64_t first)
{
    return (size_t)(p->n_train - first) * sizeof(float);
}

/* How much of the tape must lie before element `first` of the gradients: all that is in use when a
 * gradient behind it is written, but for what is before that gradient.  A row that the dry run did
 * not write is written anywhere. */
static size_t own_bytes(const struct plan *p, const int64_t *reach, size_t peak, int64_t first)
{
    size_t more = bytes_from(p, first), own = peak > more ? peak - more : 0;
    for (int i = 0; i < p->n_trained; i++) {
        int64_t row = p->trained[i], begin = p->place[row].begin;
        size_t top = reach[row] < 0 ? peak : (size_t)reach[row];
        size_t before = (size_t)(begin - first) * sizeof(float);
        if (begin >= first && top > before)
            own = larger(own, top - before);
    }
    return round_up(own);
}

static int64_t best_first(const struct plan *p, const int64_t *reach, size_t peak)
{
    int64_t best = p->n_train;
    size_t least = peak;
    for (int u = 0; u < p->n_units; u++) {
        size_t own = p->unit[u].frozen ? peak : own_bytes(p, reach, peak, p->unit[u].begin);
        if (own < least) {
            least = own;
            best = p->unit[u].begin;
        }
    }
    return best;
}

static void measure(const struct model *m, const struct device *dev, const struct plan_case *c,
                    size_t split, int64_t *reach, struct plan_memory *out)
{
    for (int i = 0; i < m->table.n_rows; i++)
        reach[i] = -1;
    plan_measure_split(m, dev, c, split, reach, out);
}

void lend_plan(const struct plan *p, const struct model *m, const struct device *dev,
               const struct plan_case *c, size_t tape_bytes, struct lend *out)
{
    enum { TRIES = 16 };
    struct plan_memory z;
    int64_t *reach = malloc((size_t)(m->table.n_rows + 1) * sizeof *reach);
    if (!reach)
        FATAL("out of memory for a dry run");
    *out = (struct lend){.own_bytes = tape_bytes, .first = p->n_train};
    measure(m, dev, c, round_up(tape_bytes), reach, &z);
    int64_t first = best_first(p, reach, z.tape_bytes);
    size_t split = own_bytes(p, reach, z.tape_bytes, first);
    bool fits = false;
    /* what would straddle the split moves behind it, and all that follows with it */
    for (int i = 0; i < TRIES && !fits && split < tape_bytes; i++) {
        measure(m, dev, c, split, reach, &z);
        size_t need = own_bytes(p, reach, z.tape_bytes, first);
        fits = need <= split;
        if (!fits)
            split = need;
    }
    if (fits)
        *out =
            (struct lend){.own_bytes = split, .first = first, .more_bytes = bytes_from(p, first)};
    free(reach);
}
