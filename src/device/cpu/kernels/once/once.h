/* Private to once/: what one instruction set's build has beside its kernels; see cpu.h. */
#pragma once
#include "device/cpu/kernels/isa.h"

void ISA_FN(gemm)(const struct gemm *g, const float *A, const float *B, float *C, void *work,
                  int n_threads);
size_t ISA_FN(gemm_work)(int n_threads);
void ISA_FN(widen)(const struct cpu_rows *r, int n_threads);
void ISA_FN(narrow)(const struct cpu_rows *r, int n_threads);
void ISA_FN(add_rows)(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows,
                      int64_t cols, int n_threads);
void ISA_FN(pack_panels)(const struct cpu_side *s, int n_threads);
void ISA_FN(pack_turned)(const struct cpu_side *s, int n_threads);
