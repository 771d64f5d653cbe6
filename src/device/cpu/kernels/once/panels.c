/* A side of a product as a library's kernels read it fastest: words in panels of columns, or
 * turned.  A word is a float, or two bf16 that are neighbours along K.  Both go through squares
 * of words: whole ones straight from memory, those at an edge from a copy with zeros around it. */
#include "device/cpu/kernels/bf16.h"
#include "device/cpu/kernels/f16.h"
#include "device/cpu/kernels/once/once.h"

/* TURN columns are turned at a time: the cache line of a row of bf16. */
enum { TASK_WORDS = 16, TURN = 32 };

/* Bytes that are fetched ahead in each row: rows lie pages apart, and a row ends before the machine
 * has seen where it goes.  A third to two thirds of the time of sides that no cache holds; ahead of
 * what is written a tenth to a fifth. */
enum { AHEAD_ACROSS = 256, AHEAD_ALONG = 128, AHEAD_TO = 128 };

static int threads(const struct cpu_side *s, int n_threads)
{
    return s->K * s->N >= 32768 ? n_threads : 1;
}

/* The bits of an element as part of a word.  Zero where there is none. */
static uint32_t element_at(const struct cpu_side *s, int64_t k, int64_t n)
{
    int64_t at = s->turned ? n * s->ld + k : k * s->ld + n;
    const uint16_t *half = s->from;
    if (k >= s->K || n >= s->N)
        return 0;
    if (s->pair == 2)
        return half[at];
    return f32_bits(s->dtype == DTYPE_F32 ? ((const float *)s->from)[at]
                                          : half_widen(s->dtype, half[at]));
}

static uint32_t word_at(const struct cpu_side *s, int64_t word, int64_t n)
{
    uint32_t low = element_at(s, word * s->pair, n);
    return s->pair == 2 ? low | element_at(s, word * 2 + 1, n) << 16 : low;
}

static inline size_t elem_bytes(const struct cpu_side *s)
{
    return s->dtype == DTYPE_F32 ? 4 : 2;
}

/* VL words whose elements lie behind each other. */
static inline vf words_load(const struct cpu_side *s, const void *at)
{
    float lane[VL];
    if (s->pair == 1 && s->dtype == DTYPE_BF16)
        return bf16_load(at);
    if (s->dtype == DTYPE_F16)
        return f16_load(at);
    memcpy(lane, at, sizeof lane);
    return vf_load(lane);
}

/* Words of VL columns from n on. */
static inline vf across(const struct cpu_side *s, int64_t word, int64_t n)
{
    if (s->pair == 1) {
        const char *row = (const char *)s->from + (size_t)(word * s->ld + n) * elem_bytes(s);
        __builtin_prefetch(row + AHEAD_ACROSS);
        return words_load(s, row);
    }
    vh low, high;
    const uint16_t *at = (const uint16_t *)s->from + 2 * word * s->ld + n;
    __builtin_prefetch((const char *)at + AHEAD_ACROSS);
    __builtin_prefetch((const char *)(at + s->ld) + AHEAD_ACROSS);
    memcpy(&low, at, sizeof low);
    memcpy(&high, at + s->ld, sizeof high);
#if defined __AVX512F__
    return (vf)_mm512_or_si512(_mm512_cvtepu16_epi32((__m256i)low),
                               _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)high), 16));
#elif defined __AVX2__ && defined __FMA__
    return (vf)_mm256_or_si256(_mm256_cvtepu16_epi32((__m128i)low),
                               _mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)high), 16));
#else
    return (vf)(__builtin_convertvector(low, vw) | __builtin_convertvector(high, vw) << 16);
#endif
}

/* VL words of a turned side's column n. */
static inline vf along(const struct cpu_side *s, int64_t word, int64_t n)
{
    const char *at = (const char *)s->from + (size_t)(n * s->ld + word * s->pair) * elem_bytes(s);
    __builtin_prefetch(at + AHEAD_ALONG);
    return words_load(s, at);
}

/* Which square is loaded is a constant in each copy of these, so that it stays in registers. */
#define SQUARE static inline __attribute__((always_inline)) void

/* v[i] is word row i of the square at (word, n); of a turned side, column i. */
SQUARE square_load(const struct cpu_side *s, vf v[VL], int64_t word, int64_t n, const bool turned,
                   const bool whole)
{
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++) {
        if (whole) {
            v[i] = turned ? along(s, word, n + i) : across(s, word + i, n);
            continue;
        }
        uint32_t lane[VL];
        for (int j = 0; j < VL; j++)
            lane[j] = turned ? word_at(s, word + j, n + i) : word_at(s, word + i, n + j);
        memcpy(&v[i], lane, sizeof lane);
    }
}

static inline bool is_whole(const struct cpu_side *s, int64_t word, int64_t n)
{
    return (word + VL) * s->pair <= s->K && n + VL <= s->N;
}

SQUARE panel_square(const struct cpu_side *s, float *to, int64_t word, int64_t n, const bool turned,
                    const bool whole)
{
    vf v[VL];
    square_load(s, v, word, n, turned, whole);
    if (turned)
        vf_transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        if (whole || word + i < s->rows)
            vf_store(to + i * s->width, v[i]);
}

/* Word rows [word, end) of the panel that begins at column n. */
SQUARE panel_rows(const struct cpu_side *s, int64_t n, int64_t word, int64_t end, const bool turned)
{
    for (int64_t w = word; w < end; w += VL)
        for (int64_t j = 0; j < s->width; j += VL) {
            float *to = (float *)s->to + n * s->rows + w * s->width + j;
            if (is_whole(s, w, n + j))
                panel_square(s, to, w, n + j, turned, true);
            else
                panel_square(s, to, w, n + j, turned, false);
        }
}

/* Tasks follow the rows of memory: a turned side's are columns. */
void ISA_FN(pack_panels)(const struct cpu_side *s, int n_threads)
{
    REQUIRE(s->width % VL == 0);
    if (s->turned) {
#pragma omp parallel for schedule(static) num_threads(threads(s, n_threads))
        for (int64_t n = 0; n < s->N; n += s->width)
            panel_rows(s, n, 0, s->rows, true);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(threads(s, n_threads))
    for (int64_t w = 0; w < s->rows; w += TASK_WORDS)
        for (int64_t n = 0; n < s->N; n += s->width)
            panel_rows(s, n, w, min_i64(w + TASK_WORDS, s->rows), false);
}

SQUARE turned_square(const struct cpu_side *s, int64_t word, int64_t n, const bool whole)
{
    vf v[VL];
    float *to = (float *)s->to + n * s->rows + word;
    int64_t words = whole ? VL : min_i64(VL, s->rows - word);
    square_load(s, v, word, n, false, whole);
    vf_transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++, to += s->rows) {
        if (whole) {
            __builtin_prefetch((const char *)to + AHEAD_TO, 1);
            vf_store(to, v[i]);
        } else if (n + i < s->N) {
            memcpy(to, &v[i], (size_t)words * sizeof *to);
        }
    }
}

/* Columns [n, end) of a side that is not turned as rows. */
static void turned_rows(const struct cpu_side *s, int64_t n, int64_t end)
{
    for (int64_t w = 0; w < s->rows; w += VL)
        for (int64_t j = n; j < end; j += VL)
            if (is_whole(s, w, j))
                turned_square(s, w, j, true);
            else
                turned_square(s, w, j, false);
}

void ISA_FN(pack_turned)(const struct cpu_side *s, int n_threads)
{
    REQUIRE(!s->turned && s->rows * s->pair == s->K);
#pragma omp parallel for schedule(static) num_threads(threads(s, n_threads))
    for (int64_t n = 0; n < s->N; n += TURN)
        turned_rows(s, n, min_i64(n + TURN, s->N));
}
