/* Gram and Schmidt, each vector against the ones before it and twice, since once leaves what
 * cancellation made of it; sums in fp64, in order.  The vectors are few. */
#include "device/cpu/kernels/once/once.h"

#include <math.h>

struct vectors {
    float *at;
    int64_t n, step, next;
};

static double dot(const struct vectors *v, int64_t a, int64_t b)
{
    const float *x = v->at + a * v->next, *y = v->at + b * v->next;
    double sum = 0;
    for (int64_t i = 0; i < v->n; i++)
        sum += (double)x[i * v->step] * y[i * v->step];
    return sum;
}

/* Vector a less share of vector b; a == b: times 1 - share. */
static void subtract(const struct vectors *v, int64_t a, int64_t b, double share)
{
    float *x = v->at + a * v->next;
    const float *y = v->at + b * v->next;
    for (int64_t i = 0; i < v->n; i++)
        x[i * v->step] = (float)(x[i * v->step] - share * y[i * v->step]);
}

void ISA_FN(orthonormalize)(struct stream *s, float *v, int64_t n, int64_t r, int64_t step,
                            int64_t next)
{
    const struct vectors all = {v, n, step, next};
    (void)s;
    for (int64_t k = 0; k < r; k++) {
        double before = sqrt(dot(&all, k, k));
        for (int twice = 0; twice < 2; twice++)
            for (int64_t j = 0; j < k; j++)
                subtract(&all, k, j, dot(&all, k, j));
        double after = sqrt(dot(&all, k, k));
        /* nothing but rounding is left: no direction of its own */
        subtract(&all, k, k, after > 1e-7 * before ? 1 - 1 / after : 1);
    }
}
