/* Private to kernels/: one vector of floats of the build's width, for loops whose order of sums
 * must be ours (compilers may not reorder them) and for register tiles. */
#pragma once
#include <stdint.h>
#include <string.h>

#if defined __AVX512F__
#include <immintrin.h>
typedef __m512 vf;
enum { VL = 16, VL2 = 2 * VL };
#define vf_fma(a, b, c) _mm512_fmadd_ps((a), (b), (c))
#define vf_set1(a) _mm512_set1_ps(a)
#define vf_load(p) _mm512_loadu_ps(p)
#define vf_store(p, v) _mm512_storeu_ps((p), (v))
typedef __m512i vu;
#define vu_mul(a, b) _mm512_mul_epu32((a), (b))
#elif defined __AVX2__ && defined __FMA__
#include <immintrin.h>
typedef __m256 vf;
enum { VL = 8, VL2 = 2 * VL };
#define vf_fma(a, b, c) _mm256_fmadd_ps((a), (b), (c))
#define vf_set1(a) _mm256_set1_ps(a)
#define vf_load(p) _mm256_loadu_ps(p)
#define vf_store(p, v) _mm256_storeu_ps((p), (v))
typedef __m256i vu;
#define vu_mul(a, b) _mm256_mul_epu32((a), (b))
#else
typedef float vf __attribute__((vector_size(16)));
enum { VL = 4, VL2 = 2 * VL };
static inline vf vf_set1(float a)
{
    return (vf){a, a, a, a};
}
static inline vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
#ifdef __SSE2__
#include <immintrin.h>
typedef __m128i vu;
#define vu_mul(a, b) _mm_mul_epu32((a), (b))
#else
typedef uint64_t vu __attribute__((vector_size(16)));
#define vu_mul(a, b) (((a)&0xFFFFFFFFu) * ((b)&0xFFFFFFFFu))
#endif
#ifdef __aarch64__
#include <arm_neon.h>
#define vf_fma(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#else
#define vf_fma(a, b, c) ((a) * (b) + (c))
#endif
#endif

/* vu: VL / 2 lanes of 64 bits; vu_mul multiplies their low halves. */
typedef uint64_t vu64 __attribute__((vector_size(4 * VL)));

/* Lane by lane the larger one; m where either is no number. */
static inline vf vf_max2(vf v, vf m)
{
#if defined __AVX512F__
    return _mm512_max_ps(v, m);
#elif defined __AVX2__ && defined __FMA__
    return _mm256_max_ps(v, m);
#else
    for (int j = 0; j < VL; j++)
        m[j] = v[j] > m[j] ? v[j] : m[j];
    return m;
#endif
}

/* Lane i of VF_DOWN(v, n) is lane i + n, counted around. */
#if defined __AVX512F__
#define VF_DOWN(v, n)                                                                              \
    __builtin_shufflevector((v), (v), (n), (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6,   \
                            (n) + 7, (n) + 8, (n) + 9, (n) + 10, (n) + 11, (n) + 12, (n) + 13,     \
                            (n) + 14, (n) + 15)
#define VF_FOLD(f, v) (v = f(v, VF_DOWN(v, 8)), v = f(v, VF_DOWN(v, 4)))
#elif defined __AVX2__ && defined __FMA__
#define VF_DOWN(v, n)                                                                              \
    __builtin_shufflevector((v), (v), (n), (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6,   \
                            (n) + 7)
#define VF_FOLD(f, v) (v = f(v, VF_DOWN(v, 4)))
#else
#define VF_DOWN(v, n) __builtin_shufflevector((v), (v), (n), (n) + 1, (n) + 2, (n) + 3)
#define VF_FOLD(f, v) ((void)0)
#endif

static inline vf vf_plus(vf v, vf w)
{
    return v + w;
}

/* Lanes are added as a binary tree. */
static inline float vf_sum(vf v)
{
    VF_FOLD(vf_plus, v);
    v = v + VF_DOWN(v, 2);
    v = v + VF_DOWN(v, 1);
    return v[0];
}

static inline float vf_max(vf v)
{
    VF_FOLD(vf_max2, v);
    v = vf_max2(v, VF_DOWN(v, 2));
    v = vf_max2(v, VF_DOWN(v, 1));
    return v[0];
}

#if defined __AVX512F__
#define VF_LOW(a, b)                                                                               \
    __builtin_shufflevector((a), (b), 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define VF_HIGH(a, b)                                                                              \
    __builtin_shufflevector((a), (b), 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined __AVX2__ && defined __FMA__
#define VF_LOW(a, b) __builtin_shufflevector((a), (b), 0, 8, 1, 9, 2, 10, 3, 11)
#define VF_HIGH(a, b) __builtin_shufflevector((a), (b), 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define VF_LOW(a, b) __builtin_shufflevector((a), (b), 0, 4, 1, 5)
#define VF_HIGH(a, b) __builtin_shufflevector((a), (b), 2, 6, 3, 7)
#endif

/* A square of VL vectors: each of log2 VL rounds interleaves the upper half's rows with the lower
 * half's, which turns the bits of (row, column) by one place. */
static inline __attribute__((always_inline)) void vf_transpose(vf v[VL])
{
    for (int n = 1; n < VL; n *= 2) {
        vf w[VL];
#pragma GCC unroll 8
        for (int i = 0; i < VL / 2; i++) {
            w[2 * i] = VF_LOW(v[i], v[i + VL / 2]);
            w[2 * i + 1] = VF_HIGH(v[i], v[i + VL / 2]);
        }
        memcpy(v, w, sizeof w);
    }
}

/* Copy past the caches, to whole lines where `to` begins at one.  A thread that is done with it
 * says so before others may read. */
static inline void write_around(void *to, const void *from, size_t n_bytes)
{
    size_t at = 0;
#if defined __AVX512F__
    for (; at + 64 <= n_bytes; at += 64)
        _mm512_stream_si512((void *)((char *)to + at),
                            _mm512_loadu_si512((const char *)from + at));
#elif defined __AVX2__ && defined __FMA__
    for (; at + 32 <= n_bytes; at += 32)
        _mm256_stream_si256((void *)((char *)to + at),
                            _mm256_loadu_si256((const void *)((const char *)from + at)));
#endif
    memcpy((char *)to + at, (const char *)from + at, n_bytes - at);
}

static inline void write_around_done(void)
{
#if defined __AVX512F__ || (defined __AVX2__ && defined __FMA__)
    _mm_sfence();
#endif
}

/* Sums over a row: their bits depend on its values and length only. */
static inline float row_sum(const float *x, int64_t n)
{
    vf a = vf_set1(0.0f), b = a;
    int64_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        a = a + vf_load(x + i);
        b = b + vf_load(x + i + VL);
    }
    for (; i + VL <= n; i += VL)
        a = a + vf_load(x + i);
    float sum = vf_sum(a + b);
    for (; i < n; i++)
        sum += x[i];
    return sum;
}

static inline float row_max(const float *x, int64_t n)
{
    float top = x[0];
    int64_t i = 0;
    if (n >= VL) {
        vf m = vf_load(x);
        for (i = VL; i + VL <= n; i += VL)
            m = vf_max2(vf_load(x + i), m);
        top = vf_max(m);
    }
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}
