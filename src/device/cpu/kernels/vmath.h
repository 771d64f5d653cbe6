/* Private to kernels/: exp, tanh, the normal distribution and the activations as branch-free float
 * functions that a compiler turns into vectors.  Polynomials are minimax fits.  Every step is a
 * named operation (fma explicit, no contraction), so vector body and scalar tail give the same
 * bits. */
#pragma once
#include "base/bits.h"
#include "device/device.h"
#include <math.h>

#if defined __FP_FAST_FMAF || defined __FMA__ || defined __aarch64__
#define FMA(a, b, c) __builtin_fmaf((a), (b), (c))
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

/* e^x = 2^n e^r, |r| ≤ ln 2 / 2.  1e-7 relative; 2e-38 and 2e38 at the ends, so that one factor
 * of 2^n is enough; NaN stays NaN. */
static inline float exp_f32(float x)
{
    const float magic = 12582912.0f; /* 1.5 · 2^23: adding it rounds to an integer */
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float t = FMA(x, 1.44269504f, magic);
    float n = t - magic;
    /* ln 2 in two parts, the first so short that its product with n is exact */
    float r = FMA(n, -0.693359375f, x);
    r = FMA(n, 2.12194440e-4f, r);
    float q = FMA(0.00139504791f, r, 0.00836888375f);
    q = FMA(q, r, 0.041666206f);
    q = FMA(q, r, 0.166665189f);
    q = FMA(q, r, 0.50000001f);
    float p = 1.0f + FMA(r * r, q, r);
    return p * f32_from_bits((f32_bits(t) - 0x4B400000u + 127u) << 23);
}

static inline float tanh_f32(float x)
{
    float a = __builtin_fabsf(x), z = x * x;
    float q = FMA(-0.00590586063f, z, 0.0208053776f);
    q = FMA(q, z, -0.0537866814f);
    q = FMA(q, z, 0.133319582f);
    q = FMA(q, z, -0.333332993f);
    float small = FMA(x * z, q, x);
    float big = 1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f);
    return a < 0.6f ? small : __builtin_copysignf(big, x);
}

/* The normal distribution, 2e-7 absolute, from e = e^(-x² / 2), which its derivative needs too. */
static inline float normal_f32(float x, float e)
{
    float t = 1.0f / FMA(0.39f, __builtin_fabsf(x), 1.0f);
    float q = FMA(0.05384635f, t, -0.25824115f);
    q = FMA(q, t, 0.37516440f);
    q = FMA(q, t, -0.01663243f);
    q = FMA(q, t, 0.19443563f);
    q = FMA(q, t, 0.15142722f);
    float tail = e * t * q;
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float sigmoid_f32(float x)
{
    return 1.0f / (1.0f + exp_f32(-x));
}

#define GELU_TANH_A 0.797884561f /* sqrt(2 / pi) */
#define GELU_TANH_B 0.044715f

struct act_point {
    float value, slope;
};

/* The activation at x and its derivative, from the same exponential; what is not used of it costs
 * nothing. */
static inline __attribute__((always_inline)) struct act_point act_at(enum act_kind act, float x)
{
    switch (act) {
    case ACT_RELU: /* a NaN passes */
        return (struct act_point){x < 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f};
    case ACT_GELU: {
        float e = exp_f32(-0.5f * x * x), cdf = normal_f32(x, e);
        return (struct act_point){x * cdf, FMA(x * e, 0.398942280f, cdf)};
    }
    case ACT_GELU_TANH: { /* (1 + tanh u) / 2 is sigmoid(2 u) */
        float e = exp_f32(-2.0f * GELU_TANH_A * x * FMA(GELU_TANH_B * x, x, 1.0f));
        float g = 1.0f / (1.0f + e); /* 1 - g is e g, which loses no digits */
        float inner = 2.0f * GELU_TANH_A * FMA(3.0f * GELU_TANH_B * x, x, 1.0f);
        return (struct act_point){x * g, g * FMA(x * (e * g), inner, 1.0f)};
    }
    case ACT_SILU: {
        float g = sigmoid_f32(x);
        return (struct act_point){x * g, g * FMA(x, 1.0f - g, 1.0f)};
    }
    case ACT_TANH: {
        float t = tanh_f32(x);
        return (struct act_point){t, 1.0f - t * t};
    }
    default:
        return (struct act_point){x, 1.0f};
    }
}
