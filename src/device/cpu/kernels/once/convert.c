/* Between bf16 and fp32 by rows, for products whose library has no bf16; and a bias for those that
 * have none. */
#include "device/cpu/kernels/bf16.h"
#include "device/cpu/kernels/once/once.h"

static int threads(int64_t rows, int64_t cols, int n_threads)
{
    return rows * cols >= 32768 ? n_threads : 1;
}

void ISA_FN(widen)(const struct cpu_rows *r, int n_threads)
{
    const uint16_t *from = r->from;
    float *to = r->to;
#pragma omp parallel for schedule(static) num_threads(threads(r->rows, r->cols, n_threads))
    for (int64_t i = 0; i < r->rows; i++) {
        const uint16_t *x = from + i * r->from_ld;
        float *y = to + i * r->to_ld;
#pragma omp simd
        for (int64_t j = 0; j < r->cols; j++)
            y[j] = bf16_widen(x[j]);
    }
}

void ISA_FN(narrow)(const struct cpu_rows *r, int n_threads)
{
    const float *from = r->from;
    uint16_t *to = r->to;
    const uint16_t *b = r->bias;
#pragma omp parallel for schedule(static) num_threads(threads(r->rows, r->cols, n_threads))
    for (int64_t i = 0; i < r->rows; i++) {
        const float *x = from + i * r->from_ld;
        uint16_t *y = to + i * r->to_ld;
        if (b) {
#pragma omp simd
            for (int64_t j = 0; j < r->cols; j++)
                y[j] = bf16_narrow(x[j] + bf16_widen(b[j]));
        } else {
#pragma omp simd
            for (int64_t j = 0; j < r->cols; j++)
                y[j] = bf16_narrow(x[j]);
        }
    }
}

void ISA_FN(add_bias)(float *y, int64_t ld, const float *b, int64_t rows, int64_t cols,
                      int n_threads)
{
#pragma omp parallel for schedule(static) num_threads(threads(rows, cols, n_threads))
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            y[i * ld + j] += b[j];
}
