/* Private to kernels/: which elements dropout keeps.  Element e of sample s is dropped if word
 * e mod 4 of Philox block (s, e / 4) under the key is below p 2^32: base/rng.c's numbers, here
 * several blocks at a time. */
#pragma once
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

enum { DROP_BLOCKS = 16, DROP_WORDS = 4 * DROP_BLOCKS, DROP_VECS = 2 * DROP_BLOCKS / VL };

/* One half round on 32-bit words in 64-bit lanes: what is above bit 31 may be anything, as the
 * product looks at the low halves only. */
static inline void drop_round(vu64 *a, vu64 *b, vu64 *c, vu64 *d, uint32_t k0, uint32_t k1)
{
    vu64 m0 = (vu64){0} + 0xD2511F53u, m1 = (vu64){0} + 0xCD9E8D57u;
    vu64 x = (vu64)vu_mul((vu)*a, (vu)m0), y = (vu64)vu_mul((vu)*c, (vu)m1);
    *a = (y >> 32) ^ *b ^ k0;
    *c = (x >> 32) ^ *d ^ k1;
    *b = y;
    *d = x;
}

/* Words of blocks block … block + DROP_BLOCKS - 1, in order. */
static inline void drop_words(struct rng_key key, uint64_t sample, uint64_t block,
                              uint32_t out[DROP_WORDS])
{
    vu64 c0[DROP_VECS], c1[DROP_VECS], c2[DROP_VECS], c3[DROP_VECS];
    uint64_t at[DROP_BLOCKS];
    for (int i = 0; i < DROP_BLOCKS; i++)
        at[i] = block + (uint64_t)i;
    memcpy(c0, at, sizeof at);
    for (int v = 0; v < DROP_VECS; v++) {
        c1[v] = c0[v] >> 32;
        c2[v] = (vu64){0} + sample;
        c3[v] = c2[v] >> 32;
    }
    for (uint32_t r = 0; r < 10; r++)
#pragma GCC unroll 8
        for (int v = 0; v < DROP_VECS; v++)
            drop_round(&c0[v], &c1[v], &c2[v], &c3[v], key.k[0] + r * 0x9E3779B9u,
                       key.k[1] + r * 0xBB67AE85u);
    for (int v = 0; v < DROP_VECS; v++)
        for (int i = 0; i < VL / 2; i++) {
            uint32_t *w = out + 4 * (v * VL / 2 + i);
            w[0] = (uint32_t)c0[v][i];
            w[1] = (uint32_t)c1[v][i];
            w[2] = (uint32_t)c2[v][i];
            w[3] = (uint32_t)c3[v][i];
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
        uint32_t w[DROP_WORDS];
        int64_t at = first + i, from = at % 4;
        int64_t m = min_i64(DROP_WORDS - from, n - i);
        drop_words(d->key, sample, (uint64_t)at / 4, w);
        for (int64_t j = 0; j < m; j++)
            factor[i + j] = w[from + j] < below ? 0.0f : keep;
        i += m;
    }
}
