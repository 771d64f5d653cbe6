/* Losses over rows, with their gradients, and right answers. */
#include "device/cpu/kernels/elem.h"
#include "device/cpu/kernels/vmath.h"
#include "tensor/half.h"

enum { EXP_CHUNK = 1024 };

/* Cross-entropy is compiled for every output dtype, so that nothing is asked per element. */
#define FOR_OUTPUT static inline __attribute__((always_inline))

/* f as it is after a cast to the output dtype. */
FOR_OUTPUT float as_output(enum dtype output, float f)
{
    return output == DTYPE_F32 ? f : half_widen(output, half_narrow(output, f));
}

/* Sum of e^(x - top) over a row, in fp64 over chunks. */
FOR_OUTPUT double exp_row(enum dtype output, const elem *x, int64_t n, float top)
{
    double sum = 0.0;
    for (int64_t i0 = 0; i0 < n; i0 += EXP_CHUNK) {
        float chunk[EXP_CHUNK];
        int64_t m = min_i64(EXP_CHUNK, n - i0);
#pragma omp simd
        for (int64_t i = 0; i < m; i++)
            chunk[i] = exp_f32(as_output(output, get(x[i0 + i])) - top);
        sum += row_sum(chunk, m);
    }
    return sum;
}

/* Logits and their gradient, in panels of columns that lie one behind the other. */
struct logits {
    const elem *x;
    elem *dx; /* may be x, or NULL */
    int64_t rows, V, panel;
};

/* Columns v … v + n - 1 of row r, all that the panel at v has. */
struct piece {
    const elem *x;
    elem *dx;
    int64_t n;
};

static inline struct piece piece_at(const struct logits *l, int64_t r, int64_t v)
{
    int64_t n = min_i64(l->panel, l->V - v), at = v * l->rows + r * n;
    return (struct piece){l->x + at, l->dx ? l->dx + at : NULL, n};
}

static float ignored_row(const struct logits *l, int64_t r)
{
    for (int64_t v = 0; v < l->V && l->dx; v += l->panel) {
        struct piece p = piece_at(l, r, v);
        memset(p.dx, 0, (size_t)p.n * sizeof *p.dx);
    }
    return 0.0f;
}

FOR_OUTPUT float cross_entropy_row(enum dtype output, const struct logits *l, int64_t r,
                                   int32_t target, float scale)
{
    if (target < 0)
        return ignored_row(l, r);
    REQUIRE(target < l->V);
    struct piece aim = piece_at(l, r, target / l->panel * l->panel);
    int64_t hit = target % l->panel;
    float at = as_output(output, get(aim.x[hit])); /* dx may be x */
    float top = -INFINITY;
    double sum = 0.0;
    for (int64_t v = 0; v < l->V; v += l->panel) {
        struct piece p = piece_at(l, r, v);
        float m = elem_max(p.x, p.n);
        top = m > top ? m : top;
    }
    top = as_output(output, top); /* rounding keeps the order */
    for (int64_t v = 0; v < l->V; v += l->panel) {
        struct piece p = piece_at(l, r, v);
        sum += exp_row(output, p.x, p.n, top);
    }
    /* e^ again: its terms would be rounded twice in dx, and are cheaper made than fetched */
    float f = (float)(scale / sum);
    for (int64_t v = 0; v < l->V && l->dx; v += l->panel) {
        struct piece p = piece_at(l, r, v);
#pragma omp simd
        for (int64_t i = 0; i < p.n; i++)
            p.dx[i] = put(as_output(output, exp_f32(as_output(output, get(p.x[i])) - top) * f));
    }
    if (l->dx)
        aim.dx[hit] = put(as_output(output, exp_f32(at - top) * f - scale));
    return (float)(log(sum) - ((double)at - top));
}

static float cross_entropy_as(enum dtype output, const struct logits *l, int64_t r, int32_t target,
                              float scale)
{
    switch (output) {
    case DTYPE_BF16:
        return cross_entropy_row(DTYPE_BF16, l, r, target, scale);
    case DTYPE_F16:
        return cross_entropy_row(DTYPE_F16, l, r, target, scale);
    default:
        return cross_entropy_row(DTYPE_F32, l, r, target, scale);
    }
}

static void all_rows(float *loss, const struct logits *l, const int32_t *targets, float scale,
                     enum dtype output)
{
#pragma omp for schedule(static)
    for (int64_t r = 0; r < l->rows; r++)
        loss[r] = cross_entropy_as(output, l, r, targets[r], scale);
}

void FN(cross_entropy)(struct stream *s, float *loss, void *dlogits, const void *logits,
                       const int32_t *targets, int64_t rows, int64_t V, int64_t panel, float scale,
                       enum dtype output)
{
    struct logits l = {.x = logits, .dx = dlogits, .rows = rows, .V = V, .panel = panel};
    BY_THREADS(threads_for(s, rows * V), all_rows(loss, &l, targets, scale, output));
}

/* Models with few outputs end with these two: they ask per element. */
void FN(mse)(struct stream *s, float *loss, void *dy, const void *y, const float *values,
             int64_t rows, int64_t N, float scale, enum dtype output)
{
    elem *to = dy;
    const elem *from = y;
#pragma omp parallel for schedule(static) num_threads(threads_for(s, rows *N))
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (int64_t i = r * N; i < (r + 1) * N; i++) {
            float d = as_output(output, get(from[i])) - values[i];
            sum += (double)d * d;
            if (to)
                to[i] = put(as_output(output, 2.0f * scale * d));
        }
        loss[r] = (float)sum;
    }
}

void FN(count_correct)(struct stream *s, int64_t *n, const void *logits, const int32_t *targets,
                       int64_t rows, int64_t V, enum dtype output)
{
    const elem *x = logits;
    int64_t right = 0;
#pragma omp parallel for reduction(+ : right) schedule(static) num_threads(threads_for(s, rows *V))
    for (int64_t r = 0; r < rows; r++) {
        const elem *row = x + r * V;
        float top = as_output(output, get(row[0]));
        int64_t best = 0;
        for (int64_t i = 1; i < V; i++) {
            float at = as_output(output, get(row[i]));
            best = at > top ? i : best;
            top = at > top ? at : top;
        }
        right += best == targets[r];
    }
    *n += right;
}
