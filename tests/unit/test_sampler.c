/* The order of samples is a permutation of every n, another one in each epoch, and shares of a
 * global batch are ragged only by one.
 * RUN: -n 1 */
#include "data/sampler.h"

#include "base/hash.h"
#include "check.h"

#include <stdlib.h>

static bool is_permutation(struct sampler *s, int64_t epoch, int *seen)
{
    memset(seen, 0, (size_t)s->n_samples * sizeof *seen);
    for (int64_t i = 0; i < s->n_samples; i++) {
        int64_t at = sampler_at(s, epoch, i);
        if (at < 0 || at >= s->n_samples || seen[at]++)
            return false;
    }
    return true;
}

/* A range is what its places are one by one, and nothing behind it is written. */
static bool range_is_its_places(int64_t n, bool shuffle, int64_t begin, int64_t count)
{
    struct sampler a = {.seed = 11, .shuffle = shuffle, .n_samples = n}, b = a;
    int64_t at[200];
    at[count] = -7;
    sampler_range(&a, 3, begin, count, at);
    for (int64_t i = 0; i < count; i++)
        if (at[i] != sampler_at(&b, 3, begin + i))
            return false;
    return at[count] == -7;
}

static uint64_t order_hash(uint64_t seed, int64_t epoch, int64_t n)
{
    struct sampler s = {.seed = seed, .shuffle = true, .n_samples = n};
    uint64_t h = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = sampler_at(&s, epoch, i);
        h = hash64(&at, sizeof at, h);
    }
    return h;
}

/* One sampler, asked for two epochs in turns, gives what a new one gives for each. */
static bool epochs_in_turns(int64_t n)
{
    struct sampler both = {.seed = 5, .shuffle = true, .n_samples = n};
    for (int64_t i = 0; i < n; i++)
        for (int64_t epoch = 0; epoch < 2; epoch++) {
            struct sampler one = {.seed = 5, .shuffle = true, .n_samples = n};
            if (sampler_at(&both, epoch, i) != sampler_at(&one, epoch, i))
                return false;
        }
    return true;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Places in three ranges of a huge epoch go to different samples, all in range. */
static bool huge_is_injective(int64_t n)
{
    enum { RANGE = 50000 };
    struct sampler s = {.seed = 99, .shuffle = true, .n_samples = n};
    int64_t first[] = {0, n / 3, n - RANGE};
    int64_t *at = calloc(3 * RANGE, sizeof *at);
    bool ok = at != NULL;
    for (int r = 0; ok && r < 3; r++)
        for (int64_t i = 0; i < RANGE; i++)
            at[r * RANGE + i] = sampler_at(&s, 5, first[r] + i);
    if (ok)
        qsort(at, 3 * RANGE, sizeof *at, by_value);
    for (int64_t i = 0; ok && i < 3 * RANGE; i++)
        ok = at[i] >= 0 && at[i] < n && (i == 0 || at[i] != at[i - 1]);
    free(at);
    return ok;
}

/* Pearson's statistic of how often each of the n! orders comes up. */
static double order_chi2(int n, int n_orders, int tries)
{
    int count[120] = {0};
    for (int k = 0; k < tries; k++) {
        struct sampler s = {.seed = (uint64_t)k % 100, .shuffle = true, .n_samples = n};
        int code = 0;
        for (int i = 0; i < n; i++) { /* Lehmer: how many later ones are smaller */
            int smaller = 0;
            for (int j = i + 1; j < n; j++)
                smaller += sampler_at(&s, k / 100, j) < sampler_at(&s, k / 100, i);
            code = code * (n - i) + smaller;
        }
        count[code]++;
    }
    double chi2 = 0, want = (double)tries / n_orders;
    for (int c = 0; c < n_orders; c++)
        chi2 += (count[c] - want) * (count[c] - want) / want;
    return chi2;
}

/* The same for where place 0 of 1,000 goes, in ten buckets, over epochs. */
static double first_place_chi2(void)
{
    int count[10] = {0};
    struct sampler s = {.seed = 7, .shuffle = true, .n_samples = 1000};
    for (int64_t epoch = 0; epoch < 5000; epoch++)
        count[sampler_at(&s, epoch, 0) / 100]++;
    double chi2 = 0;
    for (int c = 0; c < 10; c++)
        chi2 += (count[c] - 500.0) * (count[c] - 500.0) / 500.0;
    return chi2;
}

static void check_share(int64_t n, int size)
{
    int64_t next = 0, before = INT64_MAX;
    for (int rank = 0; rank < size; rank++) {
        int64_t begin, end, want = 0;
        sampler_share(n, rank, size, &begin, &end);
        for (int64_t i = 0; i < n; i++) /* deal them out like cards */
            want += i % size == rank;
        CHECK(begin == next && end - begin == want && want <= before);
        next = end;
        before = want;
    }
    CHECK(next == n);
}

int main(void)
{
    static int seen[2000];
    TEST ("an order is a permutation for every n up to 2,000") {
        for (int64_t n = 1; n <= 2000; n++) {
            struct sampler s = {.seed = (uint64_t)n * 31, .shuffle = true, .n_samples = n};
            CHECK(is_permutation(&s, n % 7, seen));
        }
    }
    TEST ("huge orders send no two places to one sample") {
        CHECK(huge_is_injective(1000000000000));
        CHECK(huge_is_injective((int64_t)1 << 40));
        CHECK(huge_is_injective(((int64_t)1 << 40) + 1));
        CHECK(huge_is_injective((int64_t)1 << 62));
    }
    TEST ("a range of places is the same as one by one") {
        for (int64_t count = 0; count < 100; count++) {
            CHECK(range_is_its_places(100, true, 0, count));
            CHECK(range_is_its_places(100, true, 100 - count, count));
            CHECK(range_is_its_places(257, true, 31, count)); /* most walks are long */
            CHECK(range_is_its_places((int64_t)1 << 62, true, (int64_t)1 << 61, count));
            CHECK(range_is_its_places(100, false, 100 - count, count));
        }
    }
    TEST ("every seed and epoch has its own order") {
        uint64_t h[64];
        for (int k = 0; k < 64; k++) {
            h[k] = order_hash((uint64_t)(k / 8), k % 8, 100);
            for (int j = 0; j < k; j++)
                CHECK(h[j] != h[k]);
        }
        CHECK(order_hash(3, 4, 100) == h[3 * 8 + 4]);
        CHECK(epochs_in_turns(100));
    }
    TEST ("orders are evenly spread: 6, 24 and 120 of them, and first places") {
        CHECK(order_chi2(3, 6, 6000) < 25.7);     /* 5 degrees of freedom, 1 in 10,000 */
        CHECK(order_chi2(4, 24, 24000) < 58.4);   /* 23 */
        CHECK(order_chi2(5, 120, 60000) < 185.0); /* 119 */
        CHECK(first_place_chi2() < 33.7);         /* 9 */
    }
    TEST ("without shuffling the order is the file's in every epoch") {
        struct sampler s = {.seed = 1, .shuffle = false, .n_samples = 1000};
        for (int64_t i = 0; i < 1000; i++)
            CHECK(sampler_at(&s, i % 3, i) == i);
    }
    TEST ("shares: sums and order for all small n and sizes") {
        for (int64_t n = 0; n <= 40; n++)
            for (int size = 1; size <= 20; size++)
                check_share(n, size);
        int64_t begin, end;
        sampler_share(16, 1, 3, &begin, &end);
        CHECK(begin == 6 && end == 11);
        sampler_share(INT64_MAX, 999, 1000, &begin, &end);
        CHECK(end == INT64_MAX && end - begin == INT64_MAX / 1000);
    }
    return check_done();
}
