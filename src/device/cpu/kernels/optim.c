/* Optimizers over a flat range: everything of an element in one pass over memory. */
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vmath.h"

/* Kingma & Ba 2015, arXiv:1412.6980; decoupled: Loshchilov & Hutter 2019, arXiv:1711.05101. */
void FN(adamw)(struct stream *s, float *p, float *m, float *v, const float *g, int64_t n_elem,
               const struct adamw *h)
{
    float b1 = (float)h->beta1, b2 = (float)h->beta2;
    float a1 = (float)(1.0 - h->beta1), a2 = (float)(1.0 - h->beta2);
    float shrink = h->decoupled ? (float)(1.0 - (double)h->lr * h->weight_decay) : 1.0f;
    float decay = h->decoupled ? 0.0f : h->weight_decay;
    float step = -h->lr / h->correction1, inv2 = 1.0f / h->correction2;
    float scale = h->grad_scale, eps = h->eps;
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++) {
        float w = p[i] * shrink;
        float d = FMA(decay, w, g[i] * scale);
        float m1 = FMA(b1, m[i], a1 * d);
        float v1 = FMA(b2, v[i], a2 * d * d);
        m[i] = m1;
        v[i] = v1;
        p[i] = FMA(step, m1 / (sqrtf(v1 * inv2) + eps), w);
    }
}

void FN(sgd)(struct stream *s, float *p, float *momentum, const float *g, int64_t n_elem,
             const struct sgd *h)
{
    float scale = h->grad_scale, decay = h->weight_decay, lr = -h->lr;
    if (!momentum) {
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
        for (int64_t i = 0; i < n_elem; i++)
            p[i] = FMA(lr, FMA(decay, p[i], g[i] * scale), p[i]);
        return;
    }
    /* the buffer starts as the gradient itself, not damped */
    float keep = h->first ? 0.0f : h->momentum, take = h->first ? 1.0f : 1.0f - h->dampening;
    float ahead = h->momentum;
    bool nesterov = h->nesterov;
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
    for (int64_t i = 0; i < n_elem; i++) {
        float d = FMA(decay, p[i], g[i] * scale);
        float b = FMA(keep, momentum[i], take * d);
        momentum[i] = b;
        p[i] = FMA(lr, nesterov ? FMA(ahead, b, d) : b, p[i]);
    }
}
