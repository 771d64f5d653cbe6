/* The random split of a table into rows to train on and rows to evaluate on. */
#include "data/data_impl.h"

#include "base/hash.h"
#include "data/sampler.h"

#include <stdlib.h>

int rows_split(const char *path, uint64_t seed, int64_t n, double share, struct rows *out)
{
    *out = (struct rows){.n = {n, 0}};
    if (share >= 1)
        return n > 0 ? ERR_OK : err_set(ERR_DATA, "%s has no samples", path);
    int64_t n_train = (int64_t)((double)n * share), n_eval = n - n_train;
    if (n_train < 1 || n_eval < 1)
        FAIL(ERR_DATA, "%s: split = %g of %lld samples leaves none to %s", path, share,
             (long long)n, n_train < 1 ? "train on" : "evaluate on (split = 1 does without)");
    bool *held_out = calloc((size_t)n, sizeof *held_out);
    out->at[DATA_TRAIN] = calloc((size_t)n_train, sizeof(int64_t));
    out->at[DATA_EVAL] = calloc((size_t)n_eval, sizeof(int64_t));
    if (!held_out || !out->at[DATA_TRAIN] || !out->at[DATA_EVAL]) {
        free(held_out);
        rows_clear(out);
        FAIL(ERR_RESOURCE, "no memory to split the %lld samples of %s", (long long)n, path);
    }
    struct permutation order;
    permutation_make(rng_key_make(seed, hash64_string("rows held out")), n, &order);
    for (int64_t i = n_train; i < n; i++)
        held_out[permutation_at(&order, i)] = true;
    out->n[DATA_TRAIN] = out->n[DATA_EVAL] = 0;
    for (int64_t i = 0; i < n; i++) {
        enum data_part part = held_out[i] ? DATA_EVAL : DATA_TRAIN;
        out->at[part][out->n[part]++] = i;
    }
    free(held_out);
    return ERR_OK;
}

void rows_clear(struct rows *r)
{
    free(r->at[DATA_TRAIN]);
    free(r->at[DATA_EVAL]);
    *r = (struct rows){0};
}
