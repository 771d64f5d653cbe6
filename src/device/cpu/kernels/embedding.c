/* Token and position embeddings. */
#include "device/cpu/kernels/elem.h"

#include <string.h>

void FN(embedding_forward)(struct stream *s, void *y, const int32_t *ids, const void *wte,
                           const void *wpe, int64_t B, int64_t T, int64_t C)
{
    const elem *token = wte, *place = wpe;
    elem *to = y;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, B *T *C))
    for (int64_t i = 0; i < B * T; i++) {
        const elem *a = token + ids[i] * C;
        elem *out = to + i * C;
        if (!place) {
            memcpy(out, a, (size_t)C * sizeof *out);
            continue;
        }
        const elem *b = place + i % T * C;
#pragma omp simd
        for (int64_t c = 0; c < C; c++)
            out[c] = put(get(a[c]) + get(b[c]));
    }
}

static void add_row(float *y, const elem *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += get(x[i]);
}

/* Two tokens may name one row, so threads share out columns, not tokens: no atomics, and every
 * row is added in token order. */
void FN(embedding_backward)(struct stream *s, float *dwte, float *dwpe, const void *dy,
                            const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V)
{
    const elem *g = dy;
    int threads = threads_for(s, B * T * C);
    int64_t cols = round_up((C + threads - 1) / threads, 16);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < C; c += cols) {
        int64_t n = min_i64(cols, C - c);
        for (int64_t i = 0; i < B * T; i++) {
            REQUIRE(ids[i] >= 0 && ids[i] < V);
            if (dwte)
                add_row(dwte + ids[i] * C + c, g + i * C + c, n);
            if (dwpe)
                add_row(dwpe + i % T * C + c, g + i * C + c, n);
        }
    }
}
