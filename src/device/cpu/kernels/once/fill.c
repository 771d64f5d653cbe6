/* First values of tensors: base/rng.h's numbers, a vector of blocks at a time. */
#include "base/rng_normal.h"
#include "device/cpu/kernels/once/once.h"
#include "device/cpu/kernels/philox.h"

enum { FILL_CHUNK = 4096 };

static void normals(float z[PHILOX_WORDS], const uint32_t w[PHILOX_WORDS],
                    const struct init_rule *rule)
{
#pragma omp simd
    for (int i = 0; i < PHILOX_WORDS; i += 2) {
        float a, b;
        rng_normal_pair(w[i], w[i + 1], &a, &b);
        z[i] = rule->a + rule->b * a;
        z[i + 1] = rule->a + rule->b * b;
    }
}

static void uniforms(float z[PHILOX_WORDS], const uint32_t w[PHILOX_WORDS],
                     const struct init_rule *rule)
{
    double low = rule->a, width = (double)rule->b - low;
#pragma omp simd
    for (int i = 0; i < PHILOX_WORDS; i++)
        z[i] = (float)(low + width * ((double)w[i] * 0x1p-32));
}

static void fill_random(float *p, const struct init_rule *rule, struct rng_key key, int64_t first,
                        int64_t n)
{
    for (int64_t i = 0; i < n;) {
        uint32_t w[PHILOX_WORDS];
        float z[PHILOX_WORDS];
        int64_t at = first + i, from = at % 4, m = min_i64(PHILOX_WORDS - from, n - i);
        philox_words(key, 0, (uint64_t)at / 4, w);
        (rule->kind == INIT_NORMAL ? normals : uniforms)(z, w, rule);
        memcpy(p + i, z + from, (size_t)m * sizeof *p);
        i += m;
    }
}

void ISA_FN(fill)(struct stream *s, float *p, const struct init_rule *rule, struct rng_key key,
                  int64_t first, int64_t n_elem)
{
#pragma omp parallel for schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i += FILL_CHUNK) {
        int64_t n = min_i64(FILL_CHUNK, n_elem - i);
        if (rule->kind != INIT_CONST)
            fill_random(p + i, rule, key, first + i, n);
        for (int64_t j = 0; j < n && rule->kind == INIT_CONST; j++)
            p[i + j] = rule->a;
    }
}
