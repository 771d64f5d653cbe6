/* For tests of kernels: noise, and every device this machine can be, in every compute dtype. */
#pragma once
#include "../check.h"
#include "device/cpu/cpu.h"
#include "kernel_shim.h"

#include <stdlib.h>

static uint32_t noise_seed = 1;

/* A value that the dtype under test holds as it is. */
static inline float noise(void)
{
    noise_seed = noise_seed * 1664525u + 1013904223u;
    return as_elem((float)(noise_seed >> 8) * 0x1p-23f - 1.0f);
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

/* bf16 holds 8 bits, so a rounding moves a value by at most 2^-8 of itself (fp16 11, and 2^-11).  A
 * kernel rounds its result, and mostly something on the way there (what stands before an
 * activation, the gradient behind it, a saved y), which moves the result by at most as much: 2 /
 * 256 of the largest value (2 / 2048), beside fp32's error.  Inputs are exact: noise() is rounded
 * before the reference sees it. */
static inline double allowed(double fp32)
{
    return test_dtype == DTYPE_F32 ? fp32 : fp32 + (test_dtype == DTYPE_BF16 ? 0x1p-7 : 0x1p-10);
}

/* tol: what fp32 is allowed. */
#define CHECK_CLOSE(got, want, n, tol) CHECK_WITHIN(got, want, n, allowed(tol))

/* For what is fp32 in every dtype, or exact. */
#define CHECK_WITHIN(got, want, n, tol)                                                            \
    do {                                                                                           \
        double e_ = distance((got), (want), (n)), tol_ = (tol);                                    \
        check_that(e_ <= tol_, __FILE__, __LINE__, "%s is %g from %s, allowed %g", #got, e_,       \
                   #want, tol_);                                                                   \
    } while (0)

static inline void one_device(const char *what, int isa, int n, bool plain,
                              void (*f)(struct stream *s))
{
    struct device *d;
    char name[160];
    snprintf(name, sizeof name, "%s: %s, %s, %d thread%s, %s product", what, dtype_name(test_dtype),
             device_isa_name(isa), n, n > 1 ? "s" : "", plain ? "plain" : "best");
    TEST (name) {
        int rc = device_open_cpu(n, isa, plain ? "plain" : "auto", &d);
        CHECK(rc == ERR_OK);
        if (rc != ERR_OK)
            continue;
        struct kernels shim = shim_table(d);
        struct stream s = {.dev = d};
        s.k = test_dtype != DTYPE_F32 ? &shim : device_kernels(d, DTYPE_F32);
        f(&s);
        device_close(&d);
    }
}

/* Run f as one test for every dtype and build of the kernels with 1 and 2 threads, over the plain
 * product, and on the best of them over the product that a user gets. */
static inline void on_every_device(const char *what, void (*f)(struct stream *s))
{
    int best = device_isa_best();
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 3; t++) {
        test_dtype = dtypes[t];
        for (int n = 1; n <= 2; n++) {
            one_device(what, best, n, false, f);
            for (int isa = best; isa >= 0; isa--)
                if (isa == 0 || cpu_build(isa) != cpu_build(isa - 1))
                    one_device(what, isa, n, true, f);
        }
    }
    test_dtype = DTYPE_F32;
}
