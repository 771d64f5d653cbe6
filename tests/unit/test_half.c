/* The two 16-bit floats: every value there and back, and rounding between every two neighbours. */
#include "../check.h"
#include "kernel_shim.h"
#include "tensor/half.h"

static bool is_nan(uint16_t h, enum dtype t)
{
    return (h & 0x7FFFu) > (t == DTYPE_BF16 ? 0x7F80u : 0x7C00u);
}

/* All 65,536 values, against arithmetic, and back to their own bits. */
static void every_value(enum dtype t)
{
    test_dtype = t;
    for (uint32_t i = 0; i < 0x10000u; i++) {
        uint16_t h = (uint16_t)i;
        float f = half_widen(t, h), want = shim_widen(h);
        if (is_nan(h, t)) {
            CHECK(isnan(f) && is_nan(half_narrow(t, f), t));
            CHECK((half_narrow(t, f) & 0x8000u) == (h & 0x8000u));
            continue;
        }
        CHECK(f32_bits(f) == f32_bits(want));
        CHECK(half_narrow(t, f) == h);
    }
    test_dtype = DTYPE_F32;
}

/* Between neighbours: the middle goes to the even one, the floats beside it to the nearer one. */
static void every_tie(enum dtype t)
{
    uint32_t top =
        t == DTYPE_BF16 ? 0x7F80u : 0x7C00u; /* infinity: reached from half a step below */
    for (uint32_t i = 0; i < top; i++) {
        float low = half_widen(t, (uint16_t)i);
        /* one step above the largest finite value stands where infinity begins */
        double high = i + 1 < top ? (double)half_widen(t, (uint16_t)(i + 1))
                                  : ldexp(1, t == DTYPE_BF16 ? 128 : 16);
        float middle = (float)((low + high) / 2);
        uint16_t even = (uint16_t)(i & 1u ? i + 1 : i);
        for (int sign = 0; sign < 2; sign++) {
            float s = sign ? -1.0f : 1.0f;
            uint16_t bit = sign ? 0x8000 : 0;
            CHECK(half_narrow(t, s * middle) == (even | bit));
            CHECK(half_narrow(t, s * nextafterf(middle, 0)) == (i | bit));
            CHECK(half_narrow(t, s * nextafterf(middle, INFINITY)) == ((i + 1) | bit));
        }
    }
    CHECK(half_narrow(t, INFINITY) == top && half_narrow(t, -INFINITY) == (top | 0x8000u));
    CHECK(half_narrow(t, 3.4e38f) == (t == DTYPE_BF16 ? 0x7F80 : 0x7C00));
    CHECK(half_narrow(t, 1e-45f) == 0 && half_narrow(t, -1e-45f) == 0x8000);
}

int main(void)
{
    TEST ("bf16: every value there and back")
        every_value(DTYPE_BF16);
    TEST ("fp16: every value there and back")
        every_value(DTYPE_F16);
    TEST ("bf16: between all neighbours to nearest, ties to even")
        every_tie(DTYPE_BF16);
    TEST ("fp16: between all neighbours to nearest, ties to even")
        every_tie(DTYPE_F16);
    return check_done();
}
