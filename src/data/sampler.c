/* Shuffling without a list: a balanced Feistel network (Luby and Rackoff 1988) permutes a power of
 * four, and walking along its cycle until the value is below n makes it a permutation of n (Black
 * and Rogaway, "Ciphers with arbitrary finite domains", 2002).  Fewer than ten rounds show in how
 * often each order of five samples comes up. */
#include "data/sampler.h"

#include "base/err.h"
#include "base/hash.h"

enum { ROUNDS = 12 };

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

int64_t sampler_permute(struct rng_key key, int64_t n, int64_t i)
{
    REQUIRE(n > 0 && n <= (int64_t)1 << 62 && i >= 0 && i < n);
    uint64_t round_key[ROUNDS];
    for (uint64_t r = 0; r < ROUNDS; r += 2) {
        uint32_t w[4];
        rng_block(key, 2, r, w);
        round_key[r] = (uint64_t)w[0] << 32 | w[1];
        round_key[r + 1] = (uint64_t)w[2] << 32 | w[3];
    }
    int half = 1;
    while (((uint64_t)n - 1) >> (2 * half))
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    uint32_t odd[4]; /* the network makes even permutations only: half of the keys swap 0 and 1 */
    rng_block(key, 2, ROUNDS, odd);
    uint64_t swapped = odd[0] & 1;
    do { /* the domain is less than four times n, so this takes four turns on average at most */
        x ^= x < 2 ? swapped : 0;
        uint64_t left = x >> half, right = x & mask;
        for (int r = 0; r < ROUNDS; r++) {
            uint64_t swap = left ^ (mix(right + round_key[r]) & mask);
            left = right;
            right = swap;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t sampler_at(const struct sampler *s, int64_t epoch, int64_t i)
{
    REQUIRE(i >= 0 && i < s->n_samples);
    if (!s->shuffle)
        return i;
    /* the epoch is hashed, so that it can never play the part of another seed */
    uint64_t stream = hash64(&epoch, sizeof epoch, hash64_string("order of samples"));
    return sampler_permute(rng_key_make(s->seed, stream), s->n_samples, i);
}

void sampler_share(int64_t n, int rank, int size, int64_t *begin, int64_t *end)
{
    REQUIRE(n >= 0 && size > 0 && rank >= 0 && rank < size);
    int64_t each = n / size, more = n % size;
    *begin = each * rank + (rank < more ? rank : more);
    *end = *begin + each + (rank < more);
}
