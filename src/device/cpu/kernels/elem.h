/* Private to kernels/: the compute dtype of a build, -DKERNEL_DTYPE=f32, bf16 or f16.  elem is what
 * a void * in kernel_list.h points to; arithmetic is fp32 between get and put.  bf16 is rounded to
 * nearest even by integers in every build: AVX512_BF16's instruction takes tiny numbers for zero,
 * and the same source has to give the same bits. */
#pragma once
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#define FN(name) ISA_PASTE(ISA_FN(name), KERNEL_DTYPE)

#define KERNEL(name, args) void FN(name) args;
#define KERNEL_SIZE(name, args) size_t FN(name) args;
#define KERNEL_F32(name, args)
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
#undef KERNEL_F32

#define ELEM_IS_f32 0
#define ELEM_IS_bf16 1
#define ELEM_IS_f16 2
#define ELEM_BF16 (ISA_PASTE(ELEM_IS, KERNEL_DTYPE) == ELEM_IS_bf16)
#define ELEM_F16 (ISA_PASTE(ELEM_IS, KERNEL_DTYPE) == ELEM_IS_f16)

#if ELEM_BF16
#include "device/cpu/kernels/bf16.h"
typedef uint16_t elem;
#define get(x) bf16_widen(x)
#define put(x) bf16_narrow(x)
#define elem_load(p) bf16_load(p)
#elif ELEM_F16
#include "device/cpu/kernels/f16.h"
typedef uint16_t elem;
#define get(x) f16_widen(x)
#define put(x) f16_narrow(x)
#define elem_load(p) f16_load(p)
#else
typedef float elem;
#define get(x) (x)
#define put(x) (x)
#define elem_load(p) vf_load(p)
#endif

/* Sums over a row: their bits depend on its values and length only. */
static inline float elem_sum(const elem *x, int64_t n)
{
    vf a = vf_set1(0.0f), b = a;
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        a = a + elem_load(x + i);
        b = b + elem_load(x + i + VL);
    }
    for (; i + VL <= n; i += VL)
        a = a + elem_load(x + i);
    float sum = vf_sum(a + b);
    for (; i < n; i++)
        sum += get(x[i]);
    return sum;
}

static inline float elem_max(const elem *x, int64_t n)
{
    float top = get(x[0]);
    int64_t i = 0;
    if (n >= VL) {
        vf m = elem_load(x);
        for (i = VL; i + VL <= n; i += VL)
            m = vf_max2(elem_load(x + i), m);
        top = vf_max(m);
    }
    for (; i < n; i++)
        top = get(x[i]) > top ? get(x[i]) : top;
    return top;
}
