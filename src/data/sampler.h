/* The order of samples: a keyed bijection of (seed, epoch), so it costs no memory and any position
 * can be computed alone.  The position in a training run is one global sample index; how many
 * ranks share the work is no part of it. */
#pragma once
#include "base/rng.h"
#include <stdbool.h>

struct sampler {
    uint64_t seed;
    bool shuffle;
    int64_t n_samples; /* of the part, > 0 */
};

/* Sample number at place i (0 … n_samples - 1) of an epoch.  Local. */
int64_t sampler_at(const struct sampler *s, int64_t epoch, int64_t i);

/* The bijection itself: where i goes among 0 … n - 1 (n <= 2^62) under key.  A Feistel network
 * over the next even power of two, with cycle walking.  Local. */
int64_t sampler_permute(struct rng_key key, int64_t n, int64_t i);

/* Rank's part [*begin, *end) of n samples shared by size ranks, the larger parts first: 16 on 3
 * ranks are 6, 5, 5.  Local. */
void sampler_share(int64_t n, int rank, int size, int64_t *begin, int64_t *end);
