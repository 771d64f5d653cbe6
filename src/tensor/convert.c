/* bfloat16 and binary16 by their bits; everything else through double, which holds them all but
 * large 64-bit integers. */
#include "tensor/convert.h"

#include "tensor/half.h"
#include <math.h>

bool dtype_is_float(enum dtype t)
{
    return t == DTYPE_F32 || t == DTYPE_F64 || t == DTYPE_BF16 || t == DTYPE_F16;
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
    return f32_from_bits(f32_bits(f) | 1);
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
        case DTYPE_F16:
            out[i] = (double)half_widen(from, ((const uint16_t *)in)[i]);
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
        } else {
            uint16_t h = half_narrow(to, round_to_odd(v));
            ((uint16_t *)out)[i] = h;
            back = (double)half_widen(to, h);
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
