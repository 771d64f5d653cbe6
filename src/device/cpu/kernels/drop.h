/* Private to kernels/: which elements dropout keeps.  Element e of sample s is dropped if word
 * e mod 4 of Philox block (s, e / 4) under the key is below p 2^32: base/rng.c's numbers, here in
 * lanes so that compilers make vectors of them. */
#pragma once
#include "device/cpu/kernels/isa.h"

enum { DROP_LANES = 16 };

static inline void drop_words(struct rng_key key, uint64_t sample, uint64_t block,
                              uint32_t out[4 * DROP_LANES])
{
    uint32_t c0[DROP_LANES], c1[DROP_LANES], c2[DROP_LANES], c3[DROP_LANES];
    for (int i = 0; i < DROP_LANES; i++) {
        uint64_t at = block + (uint64_t)i;
        c0[i] = (uint32_t)at;
        c1[i] = (uint32_t)(at >> 32);
        c2[i] = (uint32_t)sample;
        c3[i] = (uint32_t)(sample >> 32);
    }
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < DROP_LANES; i++) {
            uint64_t a = (uint64_t)c0[i] * 0xD2511F53u, b = (uint64_t)c2[i] * 0xCD9E8D57u;
            c0[i] = (uint32_t)(b >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)b;
            c3[i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < DROP_LANES; i++) {
        out[4 * i] = c0[i];
        out[4 * i + 1] = c1[i];
        out[4 * i + 2] = c2[i];
        out[4 * i + 3] = c3[i];
    }
}

/* factor[i] = 0 or 1 / (1 - p) for elements first … first + n - 1 of the sample at place b. */
static inline void drop_factors(const struct dropout *d, int64_t b, int64_t first, int64_t n,
                                float *factor)
{
    double limit = (double)d->p * 0x1p32;
    uint32_t below = limit >= 0x1p32 ? UINT32_MAX : (uint32_t)limit;
    float keep = d->p < 1.0f ? 1.0f / (1.0f - d->p) : 0.0f;
    uint64_t sample = (uint64_t)d->sample[b];
    for (int64_t i = 0; i < n;) {
        uint32_t w[4 * DROP_LANES];
        int64_t at = first + i, from = at % 4;
        int64_t m = min_i64(4 * DROP_LANES - from, n - i);
        drop_words(d->key, sample, (uint64_t)at / 4, w);
        for (int64_t j = 0; j < m; j++)
            factor[i + j] = w[from + j] < below ? 0.0f : keep;
        i += m;
    }
}
