/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3", SC 2011).  A number depends on its key and index alone, so any rank can make any
 * part of a tensor, and a resume or another world size changes nothing. */
#pragma once
#include <stdint.h>

struct rng_key {
    uint32_t k[2];
};

/* A key for one use: seed of the model, stream a hash of what it is for.  Local. */
struct rng_key rng_key_make(uint64_t seed, uint64_t stream);

/* The block of four words at counter (hi, lo).  Local. */
void rng_block(struct rng_key key, uint64_t hi, uint64_t lo, uint32_t out[4]);

/* Numbers first … first + n - 1 of the key's sequence; equal however the range is cut.  Local. */
void rng_fill_normal(struct rng_key key, int64_t first, int64_t n_elem, float mean, float std,
                     float *out);
void rng_fill_uniform(struct rng_key key, int64_t first, int64_t n_elem, float low, float high,
                      float *out);

/* Number i of the key's sequence, uniform in [0, 1).  Local. */
double rng_uniform(struct rng_key key, uint64_t i);
