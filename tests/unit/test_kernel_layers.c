/* Kernels of layers (linear, activations, layer norm, attention): forward against a plain fp64
 * forward, backward against central differences of that forward. */
/* RUN: -n 1 */
/* RUN: -n 1 ONEDNN_MAX_CPU_ISA=AVX2 */
#include "kernel_test.h"

/* y = f(in[0], in[1], …), all in fp64 */
struct function {
    void (*f)(const void *self, double *const *in, double *y);
    const void *self;
    int n_in;
    int64_t in_len[4], y_len;
};

/* want[e] = d (Σ y dy) / d in[i][e] by central differences, for all e. */
static double *difference(const struct function *f, double *const *in, int i, const double *dy)
{
    double *want = calloc((size_t)f->in_len[i] + 1, sizeof *want);
    double *y = calloc((size_t)f->y_len + 1, sizeof *y);
    for (int64_t e = 0; e < f->in_len[i]; e++) {
        double old = in[i][e], h = 1e-5;
        for (int side = 1; side >= -1; side -= 2) {
            in[i][e] = old + side * h;
            f->f(f->self, in, y);
            for (int64_t j = 0; j < f->y_len; j++)
                want[e] += side * y[j] * dy[j] / (2.0 * h);
        }
        in[i][e] = old;
    }
    free(y);
    return want;
}

static double *plus(double *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
    return x;
}

static double act_f64(enum act_kind act, double x)
{
    switch (act) {
    case ACT_RELU:
        return x > 0.0 ? x : 0.0;
    case ACT_GELU:
        return 0.5 * x * (1.0 + erf(x * sqrt(0.5)));
    case ACT_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case ACT_SILU:
        return x / (1.0 + exp(-x));
    case ACT_TANH:
        return tanh(x);
    default:
        return x;
    }
}

/* in: x, w, b */
static void linear_f64(const void *self, double *const *in, double *y)
{
    const struct linear *l = self;
    for (int64_t m = 0; m < l->M; m++)
        for (int64_t n = 0; n < l->N; n++) {
            double sum = in[2] ? in[2][n] : 0.0;
            for (int64_t k = 0; k < l->K; k++)
                sum += in[0][m * l->K + k] * in[1][l->in_out ? k * l->N + n : n * l->K + k];
            y[m * l->N + n] = act_f64(l->act, sum);
        }
}

/* What was in dw before is of no matter where it is unset; else it is added to. */
static void check_unset_dw(struct stream *s, const struct linear *sizes, float *dy, const float *x,
                           const float *w)
{
    struct linear l = *sizes;
    int64_t n = l.N * l.K;
    float *zero = calloc((size_t)n + 1, sizeof *zero), *any = calloc((size_t)n + 1, sizeof *any);
    l.act = ACT_NONE;
    s->k->linear_backward(s, &l, NULL, zero, NULL, dy, x, w, NULL);
    for (int64_t i = 0; i < n; i++)
        any[i] = NAN;
    l.unset_dw = true;
    s->k->linear_backward(s, &l, NULL, any, NULL, dy, x, w, NULL);
    for (int64_t i = 0; i < n; i++)
        CHECK(any[i] == zero[i]);
    free(zero), free(any);
}

static void check_linear(struct stream *s, struct linear l, bool bias, bool slopes)
{
    int64_t n[3] = {l.M * l.K, l.N * l.K, bias ? l.N : 0}, n_y = l.M * l.N;
    struct function f = {linear_f64, &l, 3, {n[0], n[1], n[2]}, n_y};
    float *x = noise_array(n[0]), *w = noise_array(n[1]), *b = noise_array(n[2]);
    float *y = noise_array(n_y), *pre = noise_array(n_y), *y2 = noise_array(n_y);
    double *in[3] = {widen(x, n[0]), widen(w, n[1]), bias ? widen(b, n[2]) : NULL};
    double *want = widen(y, n_y);
    linear_f64(&l, in, want);
    s->k->linear_forward(s, &l, y2, NULL, x, w, bias ? b : NULL);
    s->k->linear_forward(s, &l, y, pre, x, w, bias ? b : NULL);
    CHECK_CLOSE(y, want, n_y, 1e-6);
    CHECK(same_bits(y, y2, n_y));
    enum act_kind act = l.act;
    l.act = ACT_NONE;
    linear_f64(&l, in, want);
    CHECK_CLOSE(pre, want, n_y, 1e-6);
    l.act = act;
    if (act != ACT_NONE) {
        s->k->act_forward(s, y2, pre, act, n_y);
        CHECK(same_bits(y, y2, n_y));
    }

    float *dy = noise_array(n_y), *dx = noise_array(n[0]), *dw = noise_array(n[1]);
    float *db = noise_array(n[2]), *frozen = copy_array(dy, n_y);
    if (slopes) {
        double *wide = widen(dy, n_y), *dx64 = difference(&f, in, 0, wide);
        double *dw64 = plus(difference(&f, in, 1, wide), dw, n[1]);
        double *db64 = plus(difference(&f, in, 2, wide), db, n[2]);
        s->k->linear_backward(s, &l, dx, dw, bias ? db : NULL, dy, x, w, pre);
        CHECK_CLOSE(dx, dx64, n[0], 2e-6);
        CHECK_CLOSE(dw, dw64, n[1], 2e-6);
        CHECK_CLOSE(db, db64, n[2], 2e-6);
        if (l.act == ACT_NONE)
            CHECK(same_bits(dy, frozen, n_y)); /* its readers rely on it */
        else {
            float *g = copy_array(frozen, n_y);
            s->k->act_backward(s, g, pre, act, n_y);
            CHECK(same_bits(dy, g, n_y));
            free(g);
        }
        float *dx2 = noise_array(n[0]);
        s->k->linear_backward(s, &l, dx2, NULL, NULL, frozen, x, w, pre);
        CHECK(same_bits(dx, dx2, n[0]));
        s->k->linear_backward(s, &l, NULL, NULL, NULL, frozen, x, w, pre);
        check_unset_dw(s, &l, dy, x, w);
        free(wide), free(dx64), free(dw64), free(db64), free(dx2);
    }
    free(x), free(w), free(b), free(y), free(y2), free(pre), free(dy), free(dx), free(dw), free(db);
    free(frozen), free(in[0]), free(in[1]), free(in[2]), free(want);
}

static void linears(struct stream *s)
{
    for (int act = ACT_NONE; act <= ACT_TANH; act++)
        for (int bits = 0; bits < 4; bits++) {
            struct linear l = {.M = 3, .N = 5, .K = 7, .in_out = bits & 1};
            l.act = (enum act_kind)act;
            check_linear(s, l, bits & 2, true);
            l = (struct linear){.M = 1, .N = 1, .K = 1, .in_out = bits & 1, .act = l.act};
            check_linear(s, l, bits & 2, true);
            l = (struct linear){.M = 0, .N = 4, .K = 3, .in_out = bits & 1, .act = l.act};
            check_linear(s, l, bits & 2, true);
            l = (struct linear){.M = 150, .N = 260, .K = 3, .in_out = bits & 1, .act = l.act};
            check_linear(s, l, bits & 2, false);
        }
}

/* Many rows: the sums over rows in blocks and on threads, against a plain loop. */
static void linear_sums(struct stream *s)
{
    struct linear l = {.M = 301, .N = 150, .K = 5, .act = ACT_NONE};
    float *dy = noise_array(l.M * l.N), *x = noise_array(l.M * l.K), *w = noise_array(l.N * l.K);
    float *dw = noise_array(l.N * l.K), *db = noise_array(l.N), *dx = noise_array(l.M * l.K);
    double *wide_dw = widen(dw, l.N * l.K), *wide_db = widen(db, l.N);
    double *wide_dx = calloc((size_t)(l.M * l.K), sizeof *wide_dx);
    for (int64_t m = 0; m < l.M; m++)
        for (int64_t n = 0; n < l.N; n++) {
            wide_db[n] += dy[m * l.N + n];
            for (int64_t k = 0; k < l.K; k++) {
                wide_dw[n * l.K + k] += (double)dy[m * l.N + n] * x[m * l.K + k];
                wide_dx[m * l.K + k] += (double)dy[m * l.N + n] * w[n * l.K + k];
            }
        }
    s->k->linear_backward(s, &l, dx, dw, db, dy, x, w, NULL);
    CHECK_CLOSE(dx, wide_dx, l.M * l.K, 1e-6);
    CHECK_CLOSE(dw, wide_dw, l.N * l.K, 1e-6);
    CHECK_CLOSE(db, wide_db, l.N, 1e-6);
    free(dy), free(x), free(w), free(dw), free(db), free(dx), free(wide_dw), free(wide_db);
    free(wide_dx);
}

/* dx in fp32, added up over parts of the outputs: the whole, but for what is rounded once. */
static void linear_parts(struct stream *s)
{
    struct linear l = {.M = 33, .N = 70, .K = 24};
    float *x = noise_array(l.M * l.K), *w = noise_array(l.N * l.K), *dy = noise_array(l.M * l.N);
    float *dx = noise_array(l.M * l.K), *dw = noise_array(l.N * l.K);
    double *want = calloc((size_t)(l.M * l.K), sizeof *want), *want_dw = widen(dw, l.N * l.K);
    for (int64_t n = 0; n < l.N; n++)
        for (int64_t m = 0; m < l.M; m++)
            for (int64_t k = 0; k < l.K; k++) {
                want[m * l.K + k] += (double)dy[m * l.N + n] * w[n * l.K + k];
                want_dw[n * l.K + k] += (double)dy[m * l.N + n] * x[m * l.K + k];
            }
    for (int64_t n = 0; n < l.N;) {
        struct linear part = {.M = l.M, .N = n == 0 ? 48 : l.N - n, .K = l.K, .wide_dx = true};
        part.add_dx = n > 0;
        float *rows = malloc((size_t)(l.M * part.N) * sizeof *rows);
        for (int64_t i = 0; i < l.M * part.N; i++)
            rows[i] = dy[i / part.N * l.N + n + i % part.N];
        s->k->linear_backward(s, &part, dx, dw + n * l.K, NULL, rows, x, w + n * l.K, NULL);
        free(rows);
        n += part.N;
    }
    CHECK_WITHIN(dx, want, l.M * l.K, 2e-6); /* in every dtype: nothing of it was rounded */
    CHECK_CLOSE(dw, want_dw, l.N * l.K, 2e-6);
    free(x), free(w), free(dy), free(dx), free(dw), free(want), free(want_dw);
}

/* Outputs side by side in wider rows: the same bits as alone, and the rest of the rows stays. */
static void linear_strides(struct stream *s)
{
    struct linear l = {.M = 37, .N = 20, .K = 24}, wide = l;
    int64_t step = wide.ldy = 53, n = l.M * step;
    float *x = noise_array(l.M * l.K), *w = noise_array(l.N * l.K), *b = noise_array(l.N);
    float *y = noise_array(l.M * l.N), *wide_y = noise_array(n), *old = copy_array(wide_y, n);
    float *dw[2], *db[2], *dx[2];
    for (int i = 0; i < 2; i++) {
        dw[i] = calloc((size_t)(l.N * l.K), sizeof(float));
        db[i] = calloc((size_t)l.N, sizeof(float));
        dx[i] = noise_array(l.M * l.K);
    }
    s->k->linear_forward(s, &l, y, NULL, x, w, b);
    s->k->linear_forward(s, &wide, wide_y, NULL, x, w, b);
    for (int64_t m = 0; m < l.M; m++) {
        CHECK(same_bits(wide_y + m * step, y + m * l.N, l.N));
        CHECK(same_bits(wide_y + m * step + l.N, old + m * step + l.N, step - l.N));
    }
    s->k->linear_backward(s, &l, dx[0], dw[0], db[0], y, x, w, NULL);
    s->k->linear_backward(s, &wide, dx[1], dw[1], db[1], wide_y, x, w, NULL);
    CHECK(same_bits(dx[0], dx[1], l.M * l.K));
    CHECK(same_bits(dw[0], dw[1], l.N * l.K));
    CHECK(same_bits(db[0], db[1], l.N));
    for (int i = 0; i < 2; i++)
        free(dw[i]), free(db[i]), free(dx[i]);
    free(x), free(w), free(b), free(y), free(wide_y), free(old);
}

/* Value and slope in one pass are those of two, wherever they lie; the slope may take x's place. */
static void check_both(struct stream *s, enum act_kind act, const float *x, const float *y,
                       const float *slope, int64_t n)
{
    float *y2 = noise_array(n), *slope2 = copy_array(x, n);
    for (int64_t shift = 0; shift < 64; shift++) {
        s->k->act_both(s, y2 + shift, slope2 + shift, x + shift, act, n - shift);
        CHECK(same_bits(y2 + shift, y + shift, n - shift));
        CHECK(same_bits(slope2 + shift, slope + shift, n - shift));
    }
    memcpy(slope2, x, (size_t)n * sizeof *x);
    s->k->act_both(s, y2, slope2, slope2, act, n);
    CHECK(same_bits(y2, y, n) && same_bits(slope2, slope, n));
    free(y2), free(slope2);
}

/* Through a linear layer of width 1: values, slopes, ends, NaN, and bits wherever they lie. */
static void activations(struct stream *s)
{
    enum { N = 4001 };
    static float x[N], one[1] = {1.0f}, zero[N], y[N], pre[N], dx[1], dy[N], y2[N];
    for (int act = ACT_NONE; act <= ACT_TANH; act++) {
        struct linear l = {.M = 1, .N = N, .K = 1, .in_out = true, .act = (enum act_kind)act};
        for (int i = 0; i < N; i++) {
            x[i] = as_elem(((float)i - 2000.0f + 0.25f) * 0.006f);
            dy[i] = 1.0f;
        }
        x[0] = 100.0f;
        x[1] = -100.0f;
        s->k->linear_forward(s, &l, y, pre, one, x, zero);
        s->k->linear_backward(s, &l, dx, NULL, NULL, dy, one, x, pre);
        for (int i = 0; i < N; i++) {
            double v = x[i], h = 1e-6;
            double slope = (act_f64(l.act, v + h) - act_f64(l.act, v - h)) / (2.0 * h);
            CHECK_NEAR(y[i], act_f64(l.act, v), allowed(2e-7) * (1.0 + fabs(v)));
            CHECK_NEAR(dy[i], slope, allowed(1e-6));
        }
        if (act != ACT_NONE)
            check_both(s, l.act, pre, y, dy, N);
        for (int shift = 1; shift < 64; shift++) {
            l.N = N - shift;
            s->k->linear_forward(s, &l, y2, NULL, one, x + shift, NULL);
            CHECK(same_bits(y2, y + shift, l.N));
        }
        l.N = 37;
        x[5] = NAN;
        s->k->linear_forward(s, &l, y, pre, one, x, zero);
        CHECK(isnan(y[5]) && !isnan(y[4]));
    }
}

struct norm {
    int64_t rows, C;
    double eps;
};

/* in: x, w, b */
static void norm_f64(const void *self, double *const *in, double *y)
{
    const struct norm *l = self;
    for (int64_t r = 0; r < l->rows; r++) {
        const double *x = in[0] + r * l->C;
        double mean = 0.0, var = 0.0;
        for (int64_t c = 0; c < l->C; c++)
            mean += x[c] / (double)l->C;
        for (int64_t c = 0; c < l->C; c++)
            var += (x[c] - mean) * (x[c] - mean) / (double)l->C;
        for (int64_t c = 0; c < l->C; c++)
            y[r * l->C + c] = (x[c] - mean) / sqrt(var + l->eps) * in[1][c] + in[2][c];
    }
}

struct norm_data {
    float *x, *res, *w, *b, *y, *sum, *mean, *rstd;
    double *in[3]; /* of the plain forward: the sum, w, b */
};

static void check_norm_forward(struct stream *s, const struct norm *l, struct norm_data *d)
{
    int64_t rows = l->rows, C = l->C, n = rows * C;
    double *want = widen(d->y, n);
    norm_f64(l, d->in, want);
    s->k->layernorm_forward(s, d->y, NULL, d->mean, d->rstd, d->x, NULL, d->w, NULL, rows, C,
                            (float)l->eps);
    CHECK_CLOSE(d->y, want, n, 2e-6);
    plus(d->in[0], d->res, n);
    plus(d->in[2], d->b, C);
    norm_f64(l, d->in, want);
    s->k->layernorm_forward(s, d->y, d->sum, d->mean, d->rstd, d->x, d->res, d->w, d->b, rows, C,
                            (float)l->eps);
    CHECK_CLOSE(d->sum, d->in[0], n, 1e-7);
    for (int64_t i = 0; i < n; i++)
        d->in[0][i] = d->sum[i]; /* it is normalised as it was rounded */
    norm_f64(l, d->in, want);
    CHECK_CLOSE(d->y, want, n, 2e-6);
    float *alone = noise_array(C);
    for (int64_t r = 0; r < rows; r++) {
        float m, rs;
        s->k->layernorm_forward(s, alone, d->sum + r * C, &m, &rs, d->x + r * C, d->res + r * C,
                                d->w, d->b, 1, C, (float)l->eps);
        CHECK(same_bits(alone, d->y + r * C, C) && m == d->mean[r] && rs == d->rstd[r]);
    }
    free(alone), free(want);
}

static void check_norm_backward(struct stream *s, const struct norm *l, struct norm_data *d)
{
    int64_t rows = l->rows, C = l->C, n = rows * C;
    struct function f = {norm_f64, l, 3, {n, C, C}, n};
    float *dy = noise_array(n), *dx = noise_array(n), *dw = noise_array(C), *db = noise_array(C);
    float *dx2 = copy_array(dx, n);
    double *wide = widen(dy, n), *dw64 = widen(dw, C), *db64 = widen(db, C);
    for (int64_t i = 0; i < n; i++) {
        double hat = ((double)d->sum[i] - d->mean[i / C]) * d->rstd[i / C];
        dw64[i % C] += dy[i] * hat;
        db64[i % C] += dy[i];
    }
    double *dx64 = n < 1000 ? plus(difference(&f, d->in, 0, wide), dx, n) : NULL;
    s->k->layernorm_backward(s, dx, dw, db, dy, d->sum, d->w, d->mean, d->rstd, rows, C);
    CHECK_CLOSE(dw, dw64, C, 2e-6);
    CHECK_CLOSE(db, db64, C, 2e-6);
    if (dx64)
        CHECK_CLOSE(dx, dx64, n, 3e-6);
    s->k->layernorm_backward(s, dx2, NULL, NULL, dy, d->sum, d->w, d->mean, d->rstd, rows, C);
    CHECK(same_bits(dx, dx2, n));
    free(dy), free(dx), free(dw), free(db), free(dx2), free(wide), free(dw64), free(db64);
    free(dx64);
}

static void check_norm(struct stream *s, int64_t rows, int64_t C)
{
    struct norm l = {rows, C, 1e-3};
    int64_t n = rows * C;
    struct norm_data d = {noise_array(n),    noise_array(n),    noise_array(C),
                          noise_array(C),    noise_array(n),    noise_array(n),
                          noise_array(rows), noise_array(rows), {NULL}};
    d.in[0] = widen(d.x, n);
    d.in[1] = widen(d.w, C);
    d.in[2] = calloc((size_t)C, sizeof(double));
    check_norm_forward(s, &l, &d);
    check_norm_backward(s, &l, &d);
    free(d.x), free(d.res), free(d.w), free(d.b), free(d.y), free(d.sum), free(d.mean);
    free(d.rstd), free(d.in[0]), free(d.in[1]), free(d.in[2]);
}

static void norms(struct stream *s)
{
    static const int64_t sizes[][2] = {{0, 3},  {1, 1},   {2, 5},    {3, 33},
                                       {4, 70}, {2, 150}, {300, 129}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_norm(s, sizes[i][0], sizes[i][1]);
}

int main(void)
{
    on_every_device("linear", linears);
    on_every_device("linear's sums", linear_sums);
    on_every_device("linear in parts", linear_parts);
    on_every_device("linear in wider rows", linear_strides);
    on_every_device("activations", activations);
    on_every_device("layer norm", norms);
    return check_done();
}
