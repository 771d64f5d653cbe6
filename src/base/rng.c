/* Philox 4x32-10 with Box-Muller: number i is of block i / 4, so ranges may be cut anywhere.  What
 * fills a model is device/cpu/kernels/once/fill.c: the same numbers, several blocks at a time. */
#include "base/rng.h"

#include "base/rng_normal.h"

struct rng_key rng_key_make(uint64_t seed, uint64_t stream)
{
    uint64_t x = seed * 0x9E3779B97F4A7C15ull ^ stream;
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 29) * 0x94D049BB133111EBull;
    x ^= x >> 32;
    return (struct rng_key){{(uint32_t)x, (uint32_t)(x >> 32)}};
}

void rng_block(struct rng_key key, uint64_t hi, uint64_t lo, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32);
    uint32_t c2 = (uint32_t)hi, c3 = (uint32_t)(hi >> 32);
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rng_fill_normal(struct rng_key key, int64_t first, int64_t n_elem, float mean, float std,
                     float *out)
{
    for (int64_t i = 0; i < n_elem;) {
        uint32_t w[4];
        float z[4];
        int64_t at = first + i;
        rng_block(key, 0, (uint64_t)at / 4, w);
        rng_normal_pair(w[0], w[1], &z[0], &z[1]);
        rng_normal_pair(w[2], w[3], &z[2], &z[3]);
        for (int64_t j = at % 4; j < 4 && i < n_elem; j++, i++)
            out[i] = mean + std * z[j];
    }
}

void rng_fill_uniform(struct rng_key key, int64_t first, int64_t n_elem, float low, float high,
                      float *out)
{
    for (int64_t i = 0; i < n_elem;) {
        uint32_t w[4];
        int64_t at = first + i;
        rng_block(key, 0, (uint64_t)at / 4, w);
        for (int64_t j = at % 4; j < 4 && i < n_elem; j++, i++)
            out[i] = (float)(low + ((double)high - low) * ((double)w[j] * 0x1p-32));
    }
}

double rng_uniform(struct rng_key key, uint64_t i)
{
    uint32_t w[4];
    rng_block(key, 1, i, w);
    return (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53;
}
