/* What a library's product lacks, by rows: from and to bf16 or fp16, a bias, a sum. */
#include "device/cpu/kernels/bf16.h"
#include "device/cpu/kernels/f16.h"
#include "device/cpu/kernels/once/once.h"

static int threads(int64_t rows, int64_t cols, int n_threads)
{
    return rows * cols >= 32768 ? n_threads : 1;
}

static void widen_bf16(float *y, const uint16_t *x, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = bf16_widen(x[j]);
}

static void widen_f16(float *y, const uint16_t *x, int64_t n)
{
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        vf_store(y + j, f16_load(x + j));
    for (; j < n; j++)
        y[j] = f16_widen(x[j]);
}

static void widen_rows(const struct cpu_rows *r)
{
    const uint16_t *from = r->from;
    float *to = r->to;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < r->rows; i++) {
        if (r->f16)
            widen_f16(to + i * r->to_ld, from + i * r->from_ld, r->cols);
        else
            widen_bf16(to + i * r->to_ld, from + i * r->from_ld, r->cols);
    }
}

void ISA_FN(widen)(const struct cpu_rows *r, int n_threads)
{
    BY_THREADS(threads(r->rows, r->cols, n_threads), widen_rows(r));
}

static void narrow_bf16(uint16_t *y, const float *x, const uint16_t *b, int64_t n)
{
    if (b) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = bf16_narrow(x[j] + bf16_widen(b[j]));
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            y[j] = bf16_narrow(x[j]);
    }
}

static void narrow_f16(uint16_t *y, const float *x, const uint16_t *b, int64_t n)
{
    int64_t j = 0;
    for (; j + VL <= n; j += VL)
        f16_store(y + j, vf_load(x + j) + (b ? f16_load(b + j) : vf_set1(0.0f)));
    for (; j < n; j++)
        y[j] = f16_narrow(b ? x[j] + f16_widen(b[j]) : x[j]);
}

static void narrow_rows(const struct cpu_rows *r)
{
    const float *from = r->from;
    uint16_t *to = r->to;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < r->rows; i++) {
        if (r->f16)
            narrow_f16(to + i * r->to_ld, from + i * r->from_ld, r->bias, r->cols);
        else
            narrow_bf16(to + i * r->to_ld, from + i * r->from_ld, r->bias, r->cols);
    }
}

void ISA_FN(narrow)(const struct cpu_rows *r, int n_threads)
{
    BY_THREADS(threads(r->rows, r->cols, n_threads), narrow_rows(r));
}

void ISA_FN(add_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows,
                      int64_t cols, int n_threads)
{
#pragma omp parallel for schedule(static) num_threads(threads(rows, cols, n_threads))
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < cols; j++)
            y[i * ldy + j] += x[i * ldx + j];
}
