/* Private to kernels/: base/rng.h's blocks, several at a time. */
#pragma once
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

enum { PHILOX_BLOCKS = 16, PHILOX_WORDS = 4 * PHILOX_BLOCKS, PHILOX_VECS = 2 * PHILOX_BLOCKS / VL };

/* One half round on 32-bit words in 64-bit lanes: what is above bit 31 may be anything, as the
 * product looks at the low halves only. */
static inline void philox_round(vu64 *a, vu64 *b, vu64 *c, vu64 *d, uint32_t k0, uint32_t k1)
{
    vu64 m0 = (vu64){0} + 0xD2511F53u, m1 = (vu64){0} + 0xCD9E8D57u;
    vu64 x = (vu64)vu_mul((vu)*a, (vu)m0), y = (vu64)vu_mul((vu)*c, (vu)m1);
    *a = (y >> 32) ^ *b ^ k0;
    *c = (x >> 32) ^ *d ^ k1;
    *b = y;
    *d = x;
}

/* Words of the blocks (hi, block) … (hi, block + PHILOX_BLOCKS - 1), in order. */
static inline void philox_words(struct rng_key key, uint64_t hi, uint64_t block,
                                uint32_t out[PHILOX_WORDS])
{
    vu64 c0[PHILOX_VECS], c1[PHILOX_VECS], c2[PHILOX_VECS], c3[PHILOX_VECS];
    uint64_t at[PHILOX_BLOCKS];
    for (int i = 0; i < PHILOX_BLOCKS; i++)
        at[i] = block + (uint64_t)i;
    memcpy(c0, at, sizeof at);
    for (int v = 0; v < PHILOX_VECS; v++) {
        c1[v] = c0[v] >> 32;
        c2[v] = (vu64){0} + hi;
        c3[v] = c2[v] >> 32;
    }
    for (uint32_t r = 0; r < 10; r++)
#pragma GCC unroll 8
        for (int v = 0; v < PHILOX_VECS; v++)
            philox_round(&c0[v], &c1[v], &c2[v], &c3[v], key.k[0] + r * 0x9E3779B9u,
                         key.k[1] + r * 0xBB67AE85u);
    for (int v = 0; v < PHILOX_VECS; v++)
        for (int i = 0; i < VL / 2; i++) {
            uint32_t *w = out + 4 * (v * VL / 2 + i);
            w[0] = (uint32_t)c0[v][i];
            w[1] = (uint32_t)c1[v][i];
            w[2] = (uint32_t)c2[v][i];
            w[3] = (uint32_t)c3[v][i];
        }
}
