/* Private to kernels/.  Each .c below is compiled once an instruction set, with -DKERNEL_ISA=base,
 * avx2 or avx512: ISA_FN gives every build its own names, and no two builds share code.  What
 * stands in once/ knows fp32 only; the rest is compiled for every compute dtype, see elem.h. */
#pragma once
#include "device/cpu/cpu.h"

#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa) ISA_PASTE_(name, isa)
#define ISA_FN(name) ISA_PASTE(name, KERNEL_ISA)

#define KERNEL(name, args)
#define KERNEL_SIZE(name, args)
#define KERNEL_F32(name, args) void ISA_FN(name) args;
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
#undef KERNEL_F32

/* Threads for work on n_elem values: a parallel region costs as much as some 30,000 of them. */
static inline int threads_for(const struct stream *s, int64_t n_elem)
{
    return n_elem >= 32768 ? s->dev->n_threads : 1;
}

/* A call whose loops are cut with "omp for", by a team of n threads; by this one alone without the
 * runtime, which makes a team of one too, and wakes whoever waits for it: a system call each. */
#define BY_THREADS(n, call)                                                                        \
    do {                                                                                           \
        int team_ = (n);                                                                           \
        if (team_ > 1) {                                                                           \
            _Pragma("omp parallel num_threads(team_)") call;                                       \
        } else {                                                                                   \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}
