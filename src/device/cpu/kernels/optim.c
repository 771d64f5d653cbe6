/* Optimizers over a flat range: everything of an element in one pass over memory. */
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"

struct adamw_terms {
    float b1, b2, a1, a2, shrink, decay, step, inv2, scale, eps;
};

/* Whether there is a copy is a constant in each use of this loop. */
static inline __attribute__((always_inline)) void adamw_piece(float *p, float *m, float *v,
                                                              const float *g, elem *copy,
                                                              int64_t n_elem,
                                                              const struct adamw_terms t)
{
#pragma omp simd
    for (int64_t i = 0; i < n_elem; i++) {
        float w = p[i] * t.shrink;
        float d = FMA(t.decay, w, g[i] * t.scale);
        float m1 = FMA(t.b1, m[i], t.a1 * d);
        float v1 = FMA(t.b2, v[i], t.a2 * d * d);
        m[i] = m1;
        v[i] = v1;
        float p1 = FMA(t.step, m1 / (sqrtf(v1 * t.inv2) + t.eps), w);
        p[i] = p1;
        if (copy)
            copy[i] = put(p1);
    }
}

enum { PIECE = 2048, STREAM_FROM = 1 << 23 };

/* A copy that no cache would hold until it is read goes around the caches: a line that is written
 * there is fetched first. */
static void adamw_range(float *p, float *m, float *v, const float *g, elem *copy, int64_t n_elem,
                        const struct adamw_terms *h)
{
    bool around = copy && n_elem >= STREAM_FROM && (uintptr_t)copy % 64 == 0;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < n_elem; i += PIECE) {
        int64_t n = min_i64(PIECE, n_elem - i);
        elem near[PIECE];
        if (!copy)
            adamw_piece(p + i, m + i, v + i, g + i, NULL, n, *h);
        else
            adamw_piece(p + i, m + i, v + i, g + i, around ? near : copy + i, n, *h);
        if (around)
            write_around(copy + i, near, (size_t)n * sizeof *near);
    }
    if (around)
        write_around_done();
}

/* Kingma & Ba 2015, arXiv:1412.6980; decoupled: Loshchilov & Hutter 2019, arXiv:1711.05101. */
void FN(adamw)(struct stream *s, float *p, float *m, float *v, const float *g, void *copy,
               int64_t n_elem, const struct adamw *h)
{
    struct adamw_terms t = {
        .b1 = (float)h->beta1,
        .b2 = (float)h->beta2,
        .a1 = (float)(1.0 - h->beta1),
        .a2 = (float)(1.0 - h->beta2),
        .shrink = h->decoupled ? (float)(1.0 - (double)h->lr * h->weight_decay) : 1.0f,
        .decay = h->decoupled ? 0.0f : h->weight_decay,
        .step = -h->lr / h->correction1,
        .inv2 = 1.0f / h->correction2,
        .scale = h->grad_scale,
        .eps = h->eps,
    };
    BY_THREADS(threads_for(s, n_elem), adamw_range(p, m, v, g, copy, n_elem, &t));
}

void FN(sgd)(struct stream *s, float *p, float *momentum, const float *g, void *copy,
             int64_t n_elem, const struct sgd *h)
{
    float scale = h->grad_scale, decay = h->weight_decay, lr = -h->lr;
    elem *to = copy;
    if (!momentum) {
#pragma omp parallel for simd schedule(static) num_threads(threads_for(s, n_elem))
        for (int64_t i = 0; i < n_elem; i++) {
            p[i] = FMA(lr, FMA(decay, p[i], g[i] * scale), p[i]);
            if (to)
                to[i] = put(p[i]);
        }
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
        if (to)
            to[i] = put(p[i]);
    }
}
