/* Rotary position embedding, in place.  Su et al. 2021, arXiv:2104.09864. */
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"

/* One head's row: pair i turns by the i-th angle. */
static inline __attribute__((always_inline)) void rotate(elem *x, const float *table, int64_t D,
                                                         float side, bool interleaved)
{
    int64_t half = D / 2;
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        elem *a = interleaved ? x + 2 * i : x + i, *b = interleaved ? a + 1 : a + half;
        float c = table[2 * i], sn = side * table[2 * i + 1], u = get(*a), v = get(*b);
        *a = put(FMA(u, c, -(v * sn)));
        *b = put(FMA(v, c, u * sn));
    }
}

void FN(rope)(struct stream *s, void *x, const float *table, const struct rope *r)
{
    REQUIRE(r->D % 2 == 0);
    float side = r->inverse ? -1.0f : 1.0f;
    elem *to = x;
#pragma omp parallel for schedule(static)                                                          \
    num_threads(threads_for(s, r->B * r->T * r->n_head * r->D))
    for (int64_t i = 0; i < r->B * r->T; i++)
        for (int64_t h = 0; h < r->n_head; h++) {
            elem *at = to + i * r->stride + h * r->D;
            if (r->interleaved)
                rotate(at, table + i % r->T * r->D, r->D, side, true);
            else
                rotate(at, table + i % r->T * r->D, r->D, side, false);
        }
}
