/* For tests of kernels: noise, and every device this machine can be. */
#pragma once
#include "../check.h"
#include "device/device.h"

#include <stdlib.h>

static uint32_t noise_seed = 1;

static inline float noise(void)
{
    noise_seed = noise_seed * 1664525u + 1013904223u;
    return (float)(noise_seed >> 8) * 0x1p-23f - 1.0f;
}

static inline float *noise_array(int64_t n)
{
    float *p = calloc((size_t)n + 1, sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = noise();
    return p;
}

static inline float *copy_array(const float *x, int64_t n)
{
    float *p = calloc((size_t)n + 1, sizeof *p);
    if (n > 0)
        memcpy(p, x, (size_t)n * sizeof *p);
    return p;
}

static inline double *widen(const float *x, int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = x[i];
    return p;
}

static inline bool same_bits(const float *a, const float *b, int64_t n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* Largest |got - want|, over the largest |want| or 1; infinite if anything is not a number. */
static inline double distance(const float *got, const double *want, int64_t n)
{
    double worst = 0.0, top = 1.0;
    for (int64_t i = 0; i < n; i++) {
        double e = fabs(got[i] - want[i]);
        if (isnan(e))
            return INFINITY;
        worst = e > worst ? e : worst;
        top = fabs(want[i]) > top ? fabs(want[i]) : top;
    }
    return worst / top;
}

#define CHECK_CLOSE(got, want, n, tol)                                                             \
    do {                                                                                           \
        double e_ = distance((got), (want), (n));                                                  \
        check_that(e_ <= (tol), __FILE__, __LINE__, "%s is %g from %s, allowed %g", #got, e_,      \
                   #want, (double)(tol));                                                          \
    } while (0)

/* Run f as one test on every instruction set with 1 and 2 threads, over the plain product, and on
 * the best of them over the product that a user gets. */
static inline void on_every_device(const char *what, void (*f)(struct stream *s))
{
    for (int isa = device_isa_best(); isa >= 0; isa--)
        for (int n = 1; n <= 2; n++)
            for (int plain = isa == device_isa_best() ? 0 : 1; plain <= 1; plain++) {
                struct device *d;
                char name[160];
                snprintf(name, sizeof name, "%s: %s, %d thread%s, %s product", what,
                         device_isa_name(isa), n, n > 1 ? "s" : "", plain ? "plain" : "best");
                TEST (name) {
                    int rc = device_open_cpu(n, isa, plain ? "plain" : "auto", &d);
                    CHECK(rc == ERR_OK);
                    if (rc != ERR_OK)
                        continue;
                    struct stream s = {.dev = d, .k = device_kernels(d, DTYPE_F32)};
                    f(&s);
                    device_close(&d);
                }
            }
}
