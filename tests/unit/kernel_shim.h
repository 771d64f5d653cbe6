/* For tests of kernels: a table that takes fp32 arrays wherever a kernel takes its compute dtype,
 * so that one test serves every dtype.  An argument is rounded into an array of the dtype that lies
 * like it within a cache line, the kernel runs, and what it wrote is widened back. */
#pragma once
#include "device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum dtype test_dtype = DTYPE_F32;

/* Not the program's own conversions, which are under test. */
static inline uint16_t shim_narrow_bf16(float f)
{
    if (isnan(f))
        return 0x7FC0;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t below = u & 0xFFFFu, up = u >> 16;
    bool round_up = below > 0x8000u || (below == 0x8000u && (up & 1u));
    return (uint16_t)(up + round_up);
}

/* By arithmetic: m 2^(e - 25), or m 2^-24 below the normal ones. */
static inline float shim_widen_f16(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (e == 31)
        return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24));
}

/* Steps of 2^(e - 10), or of 2^-24; rint goes to the even neighbour. */
static inline uint16_t shim_narrow_f16(float f)
{
    int e;
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    if (isnan(f))
        return 0x7E00;
    float a = fabsf(f);
    if (a >= 65520.0f)
        return sign | 0x7C00;
    frexpf(a, &e);
    int step = a > 0 && e - 11 > -24 ? e - 11 : -24;
    int n = (int)rintf(ldexpf(a, -step)); /* 2048: the next power of two, whose exponent is next */
    return (uint16_t)(sign | (step == -24 ? n : (step + 24) * 1024 + n));
}

static inline uint16_t shim_narrow(float f)
{
    return test_dtype == DTYPE_F16 ? shim_narrow_f16(f) : shim_narrow_bf16(f);
}

static inline float shim_widen(uint16_t h)
{
    if (test_dtype == DTYPE_F16)
        return shim_widen_f16(h);
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* x as the dtype under test holds it. */
static inline float as_elem(float x)
{
    return test_dtype == DTYPE_F32 ? x : shim_widen(shim_narrow(x));
}

enum { SHIM_LOANS = 8, SHIM_LINE = 32 };

struct shim {
    int n;
    const float *host[SHIM_LOANS];
    float *back[SHIM_LOANS]; /* NULL: read only */
    uint16_t *block[SHIM_LOANS], *dev[SHIM_LOANS];
    int64_t n_elem[SHIM_LOANS];
};

static inline void *shim_in(struct shim *z, const void *x, int64_t n)
{
    if (!x)
        return NULL;
    for (int i = 0; i < z->n; i++)
        if (z->host[i] == x)
            return z->dev[i];
    int i = z->n++;
    REQUIRE(i < SHIM_LOANS);
    size_t n_bytes = ((size_t)n + 2 * SHIM_LINE) * sizeof(uint16_t);
    z->host[i] = x;
    z->back[i] = NULL;
    z->n_elem[i] = n;
    z->block[i] = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    z->dev[i] = z->block[i] + (uintptr_t)x / sizeof(float) % SHIM_LINE;
    for (int64_t e = 0; e < n; e++)
        z->dev[i][e] = shim_narrow(z->host[i][e]);
    return z->dev[i];
}

static inline void *shim_out(struct shim *z, void *x, int64_t n)
{
    void *dev = shim_in(z, x, n);
    for (int i = 0; x && i < z->n; i++)
        if (z->host[i] == x)
            z->back[i] = x;
    return dev;
}

static inline void shim_end(struct shim *z)
{
    for (int i = 0; i < z->n; i++) {
        for (int64_t e = 0; z->back[i] && e < z->n_elem[i]; e++)
            z->back[i][e] = shim_widen(z->dev[i][e]);
        free(z->block[i]);
    }
}

/* The stream has what the kernel says that it takes, and no byte more. */
static inline void shim_scratch(struct stream *s, const struct linear *l)
{
    size_t n_bytes = device_kernels(s->dev, test_dtype)->linear_scratch(s->dev, l);
    stack_init(&s->scratch, aligned_alloc(64, (n_bytes + 63) / 64 * 64), n_bytes);
}

static inline void shim_scratch_end(struct stream *s)
{
    free(s->scratch.base);
    stack_init(&s->scratch, NULL, 0);
}

#define SHIM struct shim z = {0}
#define REAL(s) device_kernels((s)->dev, test_dtype)
#define IN(x, n) shim_in(&z, (x), (n))
#define OUT(x, n) shim_out(&z, (x), (n))

static void shim_linear_forward(struct stream *s, const struct linear *l, void *y, void *pre,
                                const void *x, const void *w, const void *b)
{
    SHIM;
    int64_t n_y = l->M * (l->ldy ? l->ldy : l->N);
    shim_scratch(s, l);
    REAL(s)->linear_forward(s, l, OUT(y, n_y), OUT(pre, l->M * l->N), IN(x, l->M * l->K),
                            IN(w, l->N * l->K), IN(b, l->N));
    shim_scratch_end(s);
    shim_end(&z);
}

static void shim_linear_backward(struct stream *s, const struct linear *l, void *dx, float *dw,
                                 float *db, void *dy, const void *x, const void *w, const void *pre)
{
    SHIM;
    int64_t n_y = l->M * (l->ldy ? l->ldy : l->N);
    void *to = l->wide_dx ? dx : OUT(dx, l->M * l->K);
    shim_scratch(s, l);
    REAL(s)->linear_backward(s, l, to, dw, db, OUT(dy, n_y), IN(x, l->M * l->K), IN(w, l->N * l->K),
                             IN(pre, l->M * l->N));
    shim_scratch_end(s);
    shim_end(&z);
}

static void shim_act_forward(struct stream *s, void *y, const void *x, enum act_kind act, int64_t n)
{
    SHIM;
    REAL(s)->act_forward(s, OUT(y, n), IN(x, n), act, n);
    shim_end(&z);
}

static void shim_act_backward(struct stream *s, void *dy, const void *x, enum act_kind act,
                              int64_t n)
{
    SHIM;
    REAL(s)->act_backward(s, OUT(dy, n), IN(x, n), act, n);
    shim_end(&z);
}

static void shim_act_both(struct stream *s, void *y, void *slope, const void *x, enum act_kind act,
                          int64_t n)
{
    SHIM;
    const void *in = IN(x, n);
    REAL(s)->act_both(s, OUT(y, n), OUT(slope, n), in, act, n);
    shim_end(&z);
}

static void shim_layernorm_forward(struct stream *s, void *y, void *sum, float *mean, float *rstd,
                                   const void *x, const void *residual, const void *w,
                                   const void *b, int64_t rows, int64_t C, float eps)
{
    SHIM;
    int64_t n = rows * C;
    REAL(s)->layernorm_forward(s, OUT(y, n), OUT(sum, n), mean, rstd, IN(x, n), IN(residual, n),
                               IN(w, C), IN(b, C), rows, C, eps);
    shim_end(&z);
}

static void shim_layernorm_backward(struct stream *s, void *dx, float *dw, float *db,
                                    const void *dy, const void *x, const void *w, const float *mean,
                                    const float *rstd, int64_t rows, int64_t C)
{
    SHIM;
    int64_t n = rows * C;
    REAL(s)->layernorm_backward(s, OUT(dx, n), dw, db, IN(dy, n), IN(x, n), IN(w, C), mean, rstd,
                                rows, C);
    shim_end(&z);
}

static void shim_rmsnorm_forward(struct stream *s, void *y, void *sum, float *rstd, const void *x,
                                 const void *residual, const void *w, int64_t rows, int64_t C,
                                 float eps)
{
    SHIM;
    int64_t n = rows * C;
    REAL(s)->rmsnorm_forward(s, OUT(y, n), OUT(sum, n), rstd, IN(x, n), IN(residual, n), IN(w, C),
                             rows, C, eps);
    shim_end(&z);
}

static void shim_rmsnorm_backward(struct stream *s, void *dx, float *dw, const void *dy,
                                  const void *x, const void *w, const float *rstd, int64_t rows,
                                  int64_t C)
{
    SHIM;
    int64_t n = rows * C;
    REAL(s)->rmsnorm_backward(s, OUT(dx, n), dw, IN(dy, n), IN(x, n), IN(w, C), rstd, rows, C);
    shim_end(&z);
}

static void shim_rope(struct stream *s, void *x, const float *table, const struct rope *r)
{
    SHIM;
    REAL(s)->rope(s, OUT(x, r->B * r->T * r->stride), table, r);
    shim_end(&z);
}

static void shim_swiglu_forward(struct stream *s, void *y, const void *gate_up, int64_t rows,
                                int64_t F)
{
    SHIM;
    REAL(s)->swiglu_forward(s, OUT(y, rows * F), IN(gate_up, 2 * rows * F), rows, F);
    shim_end(&z);
}

static void shim_swiglu_backward(struct stream *s, void *d_gate_up, const void *dy,
                                 const void *gate_up, int64_t rows, int64_t F)
{
    SHIM;
    REAL(s)->swiglu_backward(s, OUT(d_gate_up, 2 * rows * F), IN(dy, rows * F),
                             IN(gate_up, 2 * rows * F), rows, F);
    shim_end(&z);
}

/* The test's vocabulary is small: 64 rows at most. */
static void shim_embedding_forward(struct stream *s, void *y, const int32_t *ids, const void *wte,
                                   const void *wpe, int64_t B, int64_t T, int64_t C)
{
    SHIM;
    int64_t V = 0;
    for (int64_t i = 0; i < B * T; i++)
        V = ids[i] >= V ? ids[i] + 1 : V;
    REAL(s)->embedding_forward(s, OUT(y, B * T * C), ids, IN(wte, V * C), IN(wpe, T * C), B, T, C);
    shim_end(&z);
}

static void shim_embedding_backward(struct stream *s, float *dwte, float *dwpe, const void *dy,
                                    const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V)
{
    SHIM;
    REAL(s)->embedding_backward(s, dwte, dwpe, IN(dy, B * T * C), ids, B, T, C, V);
    shim_end(&z);
}

/* q, k and v lie in one array in this order, and so do their gradients. */
static int64_t shim_qkv(const struct attention *a, const void *q, const void *v)
{
    int64_t rows = a->B * a->T;
    if (rows == 0)
        return 0;
    return (rows - 1) * a->kv_stride + ((const float *)v - (const float *)q) + a->n_kv_head * a->D;
}

static size_t shim_linear_scratch(const struct device *dev, const struct linear *l)
{
    return device_kernels(dev, test_dtype)->linear_scratch(dev, l);
}

static size_t shim_attention_scratch(const struct attention *a, int n_threads)
{
    struct device *d;
    size_t n = 0;
    if (device_open_cpu(1, 0, "plain", &d) == ERR_OK) { /* the same on every instruction set */
        n = device_kernels(d, test_dtype)->attention_scratch(a, n_threads);
        device_close(&d);
    }
    return n;
}

static uint16_t *shim_at(void *base, const void *from, const void *at)
{
    return (uint16_t *)base + ((const float *)at - (const float *)from);
}

static void shim_attention_forward(struct stream *s, const struct attention *a, void *y, float *lse,
                                   const void *q, const void *k, const void *v, void *scratch)
{
    SHIM;
    void *x = IN(q, shim_qkv(a, q, v));
    REAL(s)->attention_forward(s, a, OUT(y, a->B * a->T * a->H * a->D), lse, x, shim_at(x, q, k),
                               shim_at(x, q, v), scratch);
    shim_end(&z);
}

static void shim_attention_backward(struct stream *s, const struct attention *a, void *dq, void *dk,
                                    void *dv, const void *dy, const void *y, const float *lse,
                                    const void *q, const void *k, const void *v, void *scratch)
{
    SHIM;
    int64_t n_y = a->B * a->T * a->H * a->D;
    void *x = IN(q, shim_qkv(a, q, v)), *dx = OUT(dq, shim_qkv(a, dq, dv));
    REAL(s)->attention_backward(s, a, dx, shim_at(dx, dq, dk), shim_at(dx, dq, dv), IN(dy, n_y),
                                IN(y, n_y), lse, x, shim_at(x, q, k), shim_at(x, q, v), scratch);
    shim_end(&z);
}

static void shim_dropout(struct stream *s, void *y, const void *x, const struct dropout *d,
                         int64_t B, int64_t n)
{
    SHIM;
    void *to = OUT(y, B * n);
    REAL(s)->dropout(s, to, IN(x, B * n), d, B, n);
    shim_end(&z);
}

static void shim_add(struct stream *s, void *y, const void *a, const void *b, int64_t n)
{
    SHIM;
    REAL(s)->add(s, OUT(y, n), IN(a, n), IN(b, n), n);
    shim_end(&z);
}

static void shim_multiply(struct stream *s, void *y, const void *x, int64_t n)
{
    SHIM;
    REAL(s)->multiply(s, OUT(y, n), IN(x, n), n);
    shim_end(&z);
}

static void shim_add_scaled(struct stream *s, void *y, int64_t ldy, const void *x, float a,
                            int64_t rows, int64_t N)
{
    SHIM;
    REAL(s)->add_scaled(s, OUT(y, rows * ldy), ldy, IN(x, rows * N), a, rows, N);
    shim_end(&z);
}

static void shim_cast(struct stream *s, void *y, const float *x, int64_t n)
{
    SHIM;
    REAL(s)->cast(s, OUT(y, n), x, n);
    shim_end(&z);
}

static void shim_cross_entropy(struct stream *s, float *loss, void *dlogits, const void *logits,
                               const int32_t *targets, int64_t rows, int64_t V, int64_t panel,
                               float scale, enum dtype output)
{
    SHIM;
    void *x = IN(logits, rows * V);
    REAL(s)->cross_entropy(s, loss, OUT(dlogits, rows * V), x, targets, rows, V, panel, scale,
                           output);
    shim_end(&z);
}

static void shim_mse(struct stream *s, float *loss, void *dy, const void *y, const float *values,
                     int64_t rows, int64_t N, float scale, enum dtype output)
{
    SHIM;
    REAL(s)->mse(s, loss, OUT(dy, rows * N), IN(y, rows * N), values, rows, N, scale, output);
    shim_end(&z);
}

static void shim_count_correct(struct stream *s, int64_t *n, const void *logits,
                               const int32_t *targets, int64_t rows, int64_t V, enum dtype output)
{
    SHIM;
    REAL(s)->count_correct(s, n, IN(logits, rows * V), targets, rows, V, output);
    shim_end(&z);
}

static void shim_count_nonfinite(struct stream *s, int64_t *n, const void *x, int64_t n_elem)
{
    SHIM;
    REAL(s)->count_nonfinite(s, n, IN(x, n_elem), n_elem);
    shim_end(&z);
}

static void shim_adamw(struct stream *s, float *p, float *m, float *v, const float *g, void *copy,
                       int64_t n, const struct adamw *h)
{
    SHIM;
    REAL(s)->adamw(s, p, m, v, g, OUT(copy, n), n, h);
    shim_end(&z);
}

static void shim_sgd(struct stream *s, float *p, float *momentum, const float *g, void *copy,
                     int64_t n, const struct sgd *h)
{
    SHIM;
    REAL(s)->sgd(s, p, momentum, g, OUT(copy, n), n, h);
    shim_end(&z);
}

/* The table of the dtype under test, taking fp32. */
static inline struct kernels shim_table(const struct device *d)
{
    struct kernels k = {
#define KERNEL(name, args) .name = shim_##name,
#define KERNEL_SIZE(name, args) .name = shim_##name,
#define KERNEL_F32(name, args) .name = device_kernels(d, test_dtype)->name,
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
#undef KERNEL_F32
    };
    return k;
}
