/* SwiGLU: silu(gate) up, both from one product.  Shazeer 2020, arXiv:2002.05202. */
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"

void FN(swiglu_forward)(struct stream *s, void *y, const void *gate_up, int64_t rows, int64_t F)
{
    const elem *in = gate_up;
    elem *out = y;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *F))
    for (int64_t r = 0; r < rows; r++) {
        const elem *gate = in + r * 2 * F, *up = gate + F;
        elem *to = out + r * F;
#pragma omp simd
        for (int64_t i = 0; i < F; i++) {
            float g = get(gate[i]);
            to[i] = put(g * sigmoid_f32(g) * get(up[i]));
        }
    }
}

void FN(swiglu_backward)(struct stream *s, void *d_gate_up, const void *dy, const void *gate_up,
                         int64_t rows, int64_t F)
{
    const elem *in = gate_up, *slope = dy;
    elem *out = d_gate_up;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *F))
    for (int64_t r = 0; r < rows; r++) {
        const elem *gate = in + r * 2 * F, *up = gate + F, *d = slope + r * F;
        elem *d_gate = out + r * 2 * F, *d_up = d_gate + F;
#pragma omp simd
        for (int64_t i = 0; i < F; i++) {
            float g = get(gate[i]), q = sigmoid_f32(g), u = get(up[i]), t = get(d[i]);
            d_gate[i] = put(t * u * q * FMA(g, 1.0f - q, 1.0f));
            d_up[i] = put(t * g * q);
        }
    }
}
