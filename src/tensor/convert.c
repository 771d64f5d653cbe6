/* bfloat16 and binary16 by their bits; everything else through double, which holds them all but
 * large 64-bit integers. */
#include "tensor/convert.h"

#include <math.h>
#include <string.h>

bool dtype_is_float(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F64 || t == DTYPE_BF16 || t == DTYPE_F16;
}

static uint32_t bits_of(float v)
{
    uint32_t x;
    memcpy(&x, &v, sizeof x);
    return x;
}

static float float_of(uint32_t x)
{
    float v;
    memcpy(&v, &x, sizeof v);
    return v;
}

static uint16_t to_bf16(float v)
{
    uint32_t x = bits_of(v);
    if ((x & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(x >> 16 | 0x40);
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

static uint16_t to_f16(float v)
{
    uint32_t x = bits_of(v), sign = x >> 16 & 0x8000, mag = x & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x47800000) /* 65536 */
        return (uint16_t)(sign | 0x7c00);
    if (mag >= 0x38800000) /* 2^-14: a carry out of the mantissa is the next exponent, or inf */
        return (uint16_t)(sign | (mag + 0xfff + (mag >> 13 & 1) - 0x38000000) >> 13);
    if (mag <= 0x33000000) /* 2^-25, half of the smallest */
        return (uint16_t)sign;
    uint32_t m = (mag & 0x7fffff) | 0x800000, shift = 126 - (mag >> 23);
    uint32_t half = 1u << (shift - 1), rest = m & ((1u << shift) - 1), r = m >> shift;
    if (rest > half || (rest == half && (r & 1)))
        r++;
    return (uint16_t)(sign | r);
}

static float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31)
        return float_of(sign | 0x7f800000 | m << 13);
    if (e == 0)
        return sign ? -(float)m * 0x1p-24f : (float)m * 0x1p-24f;
    return float_of(sign | (e + 112) << 23 | m << 13);
}

/* The float next to zero from v, its last bit set where it is not v: rounding that once more to
 * fewer bits gives what rounding v itself would have given. */
static float round_to_odd(double v)
{
    float f = (float)v;
    if (isnan(v) || (double)f == v)
        return f;
    if (fabs((double)f) > fabs(v))
        f = nextafterf(f, 0.0f);
    return float_of(bits_of(f) | 1);
}

void dtype_to_f64(double *out, enum dtype from, const void *in, int64_t n_elem)
{
    for (int64_t i = 0; i < n_elem; i++)
        switch (from) {
        case DTYPE_F32:
            out[i] = (double)((const float *)in)[i];
            break;
        case DTYPE_F64:
            out[i] = ((const double *)in)[i];
            break;
        case DTYPE_BF16:
            out[i] = (double)from_bf16(((const uint16_t *)in)[i]);
            break;
        case DTYPE_F16:
            out[i] = (double)from_f16(((const uint16_t *)in)[i]);
            break;
        case DTYPE_I32:
            out[i] = ((const int32_t *)in)[i];
            break;
        default:
            out[i] = (double)((const int64_t *)in)[i];
        }
}

/* Finite values that are infinite in to, which gets them. */
static int64_t from_f64(enum dtype to, void *out, const double *in, int64_t n_elem)
{
    int64_t n_over = 0;
    for (int64_t i = 0; i < n_elem; i++) {
        double v = in[i], back = v;
        if (to == DTYPE_F64) {
            ((double *)out)[i] = v;
        } else if (to == DTYPE_F32) {
            ((float *)out)[i] = (float)v;
            back = (double)(float)v;
        } else if (to == DTYPE_BF16) {
            uint16_t h = to_bf16(round_to_odd(v));
            ((uint16_t *)out)[i] = h;
            back = (double)from_bf16(h);
        } else {
            uint16_t h = to_f16(round_to_odd(v));
            ((uint16_t *)out)[i] = h;
            back = (double)from_f16(h);
        }
        n_over += isinf(back) && !isinf(v);
    }
    return n_over;
}

int64_t dtype_convert(enum dtype to, void *out, enum dtype from, const void *in, int64_t n_elem)
{
    enum { BLOCK = 512 };
    double block[BLOCK];
    int64_t n_over = 0;
    if (to == from) {
        memcpy(out, in, (size_t)n_elem * dtype_bytes(to));
        return 0;
    }
    REQUIRE(dtype_is_float(to) && dtype_is_float(from));
    for (int64_t at = 0; at < n_elem; at += BLOCK) {
        int64_t n = n_elem - at < BLOCK ? n_elem - at : BLOCK;
        dtype_to_f64(block, from, (const char *)in + (size_t)at * dtype_bytes(from), n);
        n_over += from_f64(to, (char *)out + (size_t)at * dtype_bytes(to), block, n);
    }
    return n_over;
}
