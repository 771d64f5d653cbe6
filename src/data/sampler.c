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

/* Walks side by side, since each step of one waits for the step before: where one ends, the next
 * number begins. */
enum { LANES = 8 };
struct walks {
    uint64_t x[LANES];
    int64_t at[LANES]; /* where the end of a walk belongs */
    int n;
};

/* All lanes go through the network, whether they walk or not. */
static void turn_all(const struct permutation *p, uint64_t x[LANES])
{
    uint64_t left[LANES], right[LANES];
    for (int l = 0; l < LANES; l++) {
        uint64_t from = x[l] ^ (x[l] < 2 ? p->swapped : 0);
        left[l] = from >> p->half;
        right[l] = from & p->mask;
    }
    for (int r = 0; r < PERMUTATION_ROUNDS; r++)
        for (int l = 0; l < LANES; l++) {
            uint64_t swap = left[l] ^ (mix(right[l] + p->round_key[r]) & p->mask);
            left[l] = right[l];
            right[l] = swap;
        }
    for (int l = 0; l < LANES; l++)
        x[l] = left[l] << p->half | right[l];
}

static void permutation_range(const struct permutation *p, int64_t begin, int64_t n, int64_t *out)
{
    struct walks w = {{0}, {0}, 0};
    int64_t next = 0;
    for (; w.n < LANES && next < n; w.n++, next++) {
        w.at[w.n] = next;
        w.x[w.n] = (uint64_t)(begin + next);
    }
    while (w.n > 0) {
        turn_all(p, w.x);
        for (int l = 0; l < w.n;) {
            if (w.x[l] >= (uint64_t)p->n) {
                l++;
                continue;
            }
            out[w.at[l]] = (int64_t)w.x[l];
            if (next < n) {
                w.at[l] = next;
                w.x[l++] = (uint64_t)(begin + next++);
            } else {
                w.n--;
                w.at[l] = w.at[w.n];
                w.x[l] = w.x[w.n];
            }
        }
    }
}

/* The epoch is hashed, so that it can never play the part of another seed. */
static void want_order(struct sampler *s, int64_t epoch)
{
    if (s->has_order && s->epoch == epoch)
        return;
    uint64_t stream = hash64(&epoch, sizeof epoch, hash64_string("order of samples"));
    permutation_make(rng_key_make(s->seed, stream), s->n_samples, &s->order);
    s->has_order = true;
    s->epoch = epoch;
}

int64_t sampler_at(struct sampler *s, int64_t epoch, int64_t i)
{
    REQUIRE(i >= 0 && i < s->n_samples);
    if (!s->shuffle)
        return i;
    want_order(s, epoch);
    return permutation_at(&s->order, i);
}

void sampler_range(struct sampler *s, int64_t epoch, int64_t begin, int64_t n, int64_t *out)
{
    REQUIRE(begin >= 0 && n >= 0 && n <= s->n_samples - begin);
    if (s->shuffle) {
        want_order(s, epoch);
        permutation_range(&s->order, begin, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = begin + i;
}

void sampler_share(int64_t n, int rank, int size, int64_t *begin, int64_t *end)
{
    REQUIRE(n >= 0 && size > 0 && rank >= 0 && rank < size);
    int64_t each = n / size, more = n % size;
    *begin = each * rank + (rank < more ? rank : more);
    *end = *begin + each + (rank < more);
}
