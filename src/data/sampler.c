/* Shuffling without a list: a balanced Feistel network (Luby and Rackoff 1988) permutes a power of
 * four, and walking along its cycle until the value is below n makes it a permutation of n (Black
 * and Rogaway, "Ciphers with arbitrary finite domains", 2002).  Fewer than ten rounds show in how
 * often each order of five samples comes up. */
#include "data/sampler.h"

#include "base/err.h"
#include "base/hash.h"

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

void permutation_make(struct rng_key key, int64_t n, struct permutation *out)
{
    REQUIRE(n > 0 && n <= (int64_t)1 << 62);
    *out = (struct permutation){.n = n, .half = 1};
    for (uint64_t r = 0; r < PERMUTATION_ROUNDS; r += 2) {
        uint32_t w[4];
        rng_block(key, 2, r, w);
        out->round_key[r] = (uint64_t)w[0] << 32 | w[1];
        out->round_key[r + 1] = (uint64_t)w[2] << 32 | w[3];
    }
    while (((uint64_t)n - 1) >> (2 * out->half))
        out->half++;
    out->mask = ((uint64_t)1 << out->half) - 1;
    uint32_t odd[4]; /* the network makes even permutations only: half of the keys swap 0 and 1 */
    rng_block(key, 2, PERMUTATION_ROUNDS, odd);
    out->swapped = odd[0] & 1;
}

int64_t permutation_at(const struct permutation *p, int64_t i)
{
    REQUIRE(i >= 0 && i < p->n);
    uint64_t x = (uint64_t)i;
    do { /* the domain is less than four times n, so this takes four turns on average at most */
        x ^= x < 2 ? p->swapped : 0;
        uint64_t left = x >> p->half, right = x & p->mask;
        for (int r = 0; r < PERMUTATION_ROUNDS; r++) {
            uint64_t swap = left ^ (mix(right + p->round_key[r]) & p->mask);
            left = right;
            right = swap;
        }
        x = left << p->half | right;
    } while (x >= (uint64_t)p->n);
    return (int64_t)x;
}

int64_t sampler_at(struct sampler *s, int64_t epoch, int64_t i)
{
    REQUIRE(i >= 0 && i < s->n_samples);
    if (!s->shuffle)
        return i;
    if (!s->has_order || s->epoch != epoch) {
        /* the epoch is hashed, so that it can never play the part of another seed */
        uint64_t stream = hash64(&epoch, sizeof epoch, hash64_string("order of samples"));
        permutation_make(rng_key_make(s->seed, stream), s->n_samples, &s->order);
        s->has_order = true;
        s->epoch = epoch;
    }
    return permutation_at(&s->order, i);
}

void sampler_share(int64_t n, int rank, int size, int64_t *begin, int64_t *end)
{
    REQUIRE(n >= 0 && size > 0 && rank >= 0 && rank < size);
    int64_t each = n / size, more = n % size;
    *begin = each * rank + (rank < more ? rank : more);
    *end = *begin + each + (rank < more);
}
