/* Sides of products in panels and turned, and rows added: every instruction set's kernels against
 * plain loops, to the last word, with nothing written around them.
 * RUN: -n 1 */
#include "../check.h"
#include "device/cpu/cpu.h"
#include "tensor/half.h"

#include <stdlib.h>

enum { GUARD = 64, WORD_GUARD = 0x7ABBCCDD };

static int64_t whole(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Elements that are all different, none of them zero; those of fp16 are no NaN, which a processor
 * may change. */
static void fill(const struct cpu_side *s, uint16_t *half, uint32_t *word, int64_t n)
{
    int64_t most = s->dtype == DTYPE_F16 ? 0x7C00 : 65535;
    for (int64_t i = 0; i < n; i++) {
        half[i] = (uint16_t)(i % most + 1);
        word[i] = (uint32_t)i * 2654435761u | 1;
    }
}

static uint32_t element(const struct cpu_side *s, int64_t k, int64_t n)
{
    int64_t at = s->turned ? n * s->ld + k : k * s->ld + n;
    if (k >= s->K || n >= s->N)
        return 0;
    if (s->dtype == DTYPE_F32)
        return ((const uint32_t *)s->from)[at];
    uint16_t half = ((const uint16_t *)s->from)[at];
    return s->pair == 2 ? half : f32_bits(half_widen(s->dtype, half));
}

static uint32_t word(const struct cpu_side *s, int64_t w, int64_t n)
{
    if (s->pair == 1)
        return element(s, w, n);
    return element(s, 2 * w, n) | element(s, 2 * w + 1, n) << 16;
}

/* Where word w of column n belongs. */
static int64_t place(const struct cpu_side *s, int64_t w, int64_t n)
{
    return s->width ? (n / s->width * s->rows + w) * s->width + n % s->width : n * s->rows + w;
}

static bool side_is_right(const struct cpu_build *b, struct cpu_side *s, int n_threads)
{
    int64_t columns = s->width ? whole(s->N, s->width) : s->N, n = columns * s->rows;
    uint32_t *got = malloc((size_t)(n + 2 * GUARD) * sizeof *got);
    bool right = true;
    for (int64_t i = 0; i < n + 2 * GUARD; i++)
        got[i] = WORD_GUARD;
    s->to = got + GUARD;
    (s->width ? b->pack_panels : b->pack_turned)(s, n_threads);
    for (int64_t w = 0; w < s->rows; w++)
        for (int64_t c = 0; c < columns; c++)
            right = right && got[GUARD + place(s, w, c)] == word(s, w, c);
    for (int64_t i = 0; i < GUARD; i++)
        right = right && got[i] == WORD_GUARD && got[GUARD + n + i] == WORD_GUARD;
    free(got);
    return right;
}

/* What a side's words are: fp32, or made from halves. */
static const struct {
    enum dtype dtype;
    int pair;
} kinds[] = {{DTYPE_F32, 1}, {DTYPE_BF16, 2}, {DTYPE_BF16, 1}, {DTYPE_F16, 1}};

/* All ways to lie of one size; the source has no room behind its last element. */
static void all_ways(const struct cpu_build *b, int64_t K, int64_t N, int64_t width, int n_threads)
{
    for (int bits = 0; bits < 16; bits++) {
        struct cpu_side s = {.K = K, .N = N, .width = width};
        s.dtype = kinds[bits / 4].dtype;
        s.pair = kinds[bits / 4].pair;
        s.turned = bits & 1;
        s.ld = (s.turned ? K : N) + (bits & 2 ? 5 : 0);
        s.rows = width ? whole((K + s.pair - 1) / s.pair, 16) : K / s.pair;
        if (!width && (s.turned || K % s.pair != 0))
            continue;
        int64_t n = ((s.turned ? N : K) - 1) * s.ld + (s.turned ? K : N);
        uint16_t *half = malloc((size_t)n * sizeof *half);
        uint32_t *words = malloc((size_t)n * sizeof *words);
        fill(&s, half, words, n);
        s.from = s.dtype == DTYPE_F32 ? (void *)words : (void *)half;
        check_that(side_is_right(b, &s, n_threads), __FILE__, __LINE__,
                   "K %d N %d width %d bits %d is wrong", (int)K, (int)N, (int)width, bits);
        free(half);
        free(words);
    }
}

static void all_sizes(const struct cpu_build *b)
{
    static const int64_t K[] = {1, 2, 7, 16, 30, 33, 64, 101}, N[] = {1, 15, 16, 17, 31, 64, 81};
    static const int64_t width[] = {0, 16, 48, 64};
    for (size_t k = 0; k < sizeof K / sizeof *K; k++)
        for (size_t n = 0; n < sizeof N / sizeof *N; n++)
            for (size_t w = 0; w < sizeof width / sizeof *width; w++)
                all_ways(b, K[k], N[n], width[w], 1);
    for (size_t w = 0; w < sizeof width / sizeof *width; w++)
        all_ways(b, 300, 200, width[w], 2);
}

static bool rows_are_added(const struct cpu_build *b, int64_t rows, int64_t cols, int64_t ld,
                           int64_t ldx)
{
    int64_t n = rows * ld;
    float *y = malloc((size_t)n * sizeof *y), *x = malloc((size_t)(rows * cols) * sizeof *x);
    bool right = true;
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)i;
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = (float)(3 * i + 1);
    b->add_rows(y, ld, x, ldx, rows, cols, 2);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = i / ld, c = i % ld;
        right = right && y[i] == (float)i + (c < cols ? (float)(3 * (r * ldx + c) + 1) : 0.0f);
    }
    free(y);
    free(x);
    return right;
}

int main(void)
{
    for (int isa = device_isa_best(); isa >= CPU_ISA_BASE; isa--) {
        const struct cpu_build *b = cpu_build(isa);
        if (isa > 0 && b == cpu_build(isa - 1))
            continue;
        char name[80];
        snprintf(name, sizeof name, "%s: panels and turned sides of every size",
                 device_isa_name(isa));
        TEST (name)
            all_sizes(b);
        snprintf(name, sizeof name, "%s: rows are added, what lies between them is not touched",
                 device_isa_name(isa));
        TEST (name) {
            CHECK(rows_are_added(b, 3, 5, 9, 5));
            CHECK(rows_are_added(b, 200, 300, 300, 300));
            CHECK(rows_are_added(b, 200, 299, 311, 299));
            CHECK(rows_are_added(b, 200, 299, 311, 0)); /* a bias */
        }
    }
    return check_done();
}
