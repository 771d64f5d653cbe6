/* The order of samples: a keyed bijection of (seed, epoch), so it costs no memory and any position
 * can be computed alone.  The position in a training run is one global sample index; how many
 * ranks share the work is no part of it. */
#pragma once
#include "base/rng.h"
#include <stdbool.h>

enum { PERMUTATION_ROUNDS = 12 };

/* A bijection of 0 … n - 1, ready for use: its keys take longer to make than a number to map. */
struct permutation {
    uint64_t round_key[PERMUTATION_ROUNDS], swapped, mask;
    int64_t n;
    int half; /* bits of half a number */
};

struct sampler {
    uint64_t seed;
    bool shuffle;
    int64_t n_samples; /* of the part, > 0 */
    bool has_order;    /* the last epoch's that was asked for: */
    int64_t epoch;
    struct permutation order;
};

/* Sample number at place i (0 … n_samples - 1) of an epoch.  Local. */
int64_t sampler_at(struct sampler *s, int64_t epoch, int64_t i);
/* The same for the n places from begin on, several times faster.  Local. */
void sampler_range(struct sampler *s, int64_t epoch, int64_t begin, int64_t n, int64_t *out);

/* The bijection itself, of n <= 2^62 numbers under key, and where i goes.  A Feistel network over
 * the next even power of two, with cycle walking.  Local. */
void permutation_make(struct rng_key key, int64_t n, struct permutation *out);
int64_t permutation_at(const struct permutation *p, int64_t i);

/* Rank's part [*begin, *end) of n samples shared by size ranks, the larger parts first: 16 on 3
 * ranks are 6, 5, 5.  Local. */
void sampler_share(int64_t n, int rank, int size, int64_t *begin, int64_t *end);
