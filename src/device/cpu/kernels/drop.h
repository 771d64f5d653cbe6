/* Private to kernels/: which elements dropout keeps.  Element e of sample s is dropped if word
 * e mod 4 of Philox block (s, e / 4) under the key is below p 2^32: base/rng.c's numbers. */
#pragma once
#include "device/cpu/kernels/philox.h"

/* factor[i] = 0 or 1 / (1 - p) for elements first … first + n - 1 of the sample at place b. */
static inline void drop_factors(const struct dropout *d, int64_t b, int64_t first, int64_t n,
                                float *factor)
{
    double limit = (double)d->p * 0x1p32;
    uint32_t below = limit >= 0x1p32 ? UINT32_MAX : (uint32_t)limit;
    float keep = d->p < 1.0f ? 1.0f / (1.0f - d->p) : 0.0f;
    uint64_t sample = (uint64_t)d->sample[b];
    for (int64_t i = 0; i < n;) {
        uint32_t w[PHILOX_WORDS];
        int64_t at = first + i, from = at % 4;
        int64_t m = min_i64(PHILOX_WORDS - from, n - i);
        philox_words(d->key, sample, (uint64_t)at / 4, w);
        for (int64_t j = 0; j < m; j++)
            factor[i + j] = w[from + j] < below ? 0.0f : keep;
        i += m;
    }
}
