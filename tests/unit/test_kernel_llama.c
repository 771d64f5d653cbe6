/* RMS norm, rotary positions and SwiGLU against plain fp64 loops: backward by its formula written
 * out anew, and rotations by complex numbers. */
/* RUN: -n 1 */
#include "kernel_test.h"

#include <complex.h>

struct rms_data {
    float *x, *res, *w, *y, *sum, *rstd, *dy, *dx, *dw;
};

static void check_rms_forward(struct stream *s, int64_t rows, int64_t C, const struct rms_data *d,
                              bool residual)
{
    int64_t n = rows * C;
    double *want = widen(d->y, n), *want_sum = widen(d->x, n), *want_rstd = widen(d->rstd, rows);
    s->k->rmsnorm_forward(s, d->y, residual ? d->sum : NULL, d->rstd, d->x,
                          residual ? d->res : NULL, d->w, rows, C, 1e-3f);
    for (int64_t i = 0; i < n && residual; i++)
        want_sum[i] += d->res[i];
    if (residual)
        CHECK_CLOSE(d->sum, want_sum, n, 1e-7);
    for (int64_t r = 0; r < rows; r++) {
        double squares = 0.0;
        for (int64_t c = 0; c < C; c++) { /* it is normalised as it was rounded */
            double v = residual ? d->sum[r * C + c] : d->x[r * C + c];
            want_sum[r * C + c] = v;
            squares += v * v;
        }
        want_rstd[r] = 1.0 / sqrt(squares / (double)C + 1e-3);
        for (int64_t c = 0; c < C; c++)
            want[r * C + c] = want_sum[r * C + c] * want_rstd[r] * d->w[c];
    }
    CHECK_CLOSE(d->y, want, n, 1e-6);
    CHECK_WITHIN(d->rstd, want_rstd, rows, 1e-6);
    for (int64_t r = 0; r < rows && residual; r++) { /* a row alone has the same bits */
        float *alone = noise_array(C), rs;
        s->k->rmsnorm_forward(s, alone, d->sum + r * C, &rs, d->x + r * C, d->res + r * C, d->w, 1,
                              C, 1e-3f);
        CHECK(same_bits(alone, d->y + r * C, C) && rs == d->rstd[r]);
        free(alone);
    }
    free(want), free(want_sum), free(want_rstd);
}

/* y_i = x_i r w_i with r = (Σ x² / C + eps)^(-1/2), so with g = dy w
 * dx_i = r (g_i - x_i r² Σ g x / C). */
static void check_rms_backward(struct stream *s, int64_t rows, int64_t C, const struct rms_data *d)
{
    int64_t n = rows * C;
    double *want = widen(d->dx, n), *want_dw = widen(d->dw, C);
    float *again = copy_array(d->dx, n);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = d->sum + r * C, *dy = d->dy + r * C;
        double squares = 0.0, dot = 0.0;
        for (int64_t c = 0; c < C; c++) {
            squares += (double)x[c] * x[c];
            dot += (double)dy[c] * d->w[c] * x[c];
        }
        double rs = 1.0 / sqrt(squares / (double)C + 1e-3);
        for (int64_t c = 0; c < C; c++) {
            want[r * C + c] += rs * ((double)dy[c] * d->w[c] - x[c] * rs * rs * dot / (double)C);
            want_dw[c] += dy[c] * x[c] * rs;
        }
    }
    s->k->rmsnorm_backward(s, d->dx, d->dw, d->dy, d->sum, d->w, d->rstd, rows, C);
    CHECK_CLOSE(d->dx, want, n, 2e-6);
    CHECK_WITHIN(d->dw, want_dw, C, 2e-6);
    s->k->rmsnorm_backward(s, again, NULL, d->dy, d->sum, d->w, d->rstd, rows, C);
    CHECK(same_bits(d->dx, again, n));
    free(want), free(want_dw), free(again);
}

static void rms_norms(struct stream *s)
{
    static const int64_t sizes[][2] = {{0, 3},  {1, 1},   {2, 5},    {3, 33},
                                       {4, 70}, {2, 150}, {300, 129}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t rows = sizes[i][0], C = sizes[i][1], n = rows * C;
        struct rms_data d = {noise_array(n), noise_array(n), noise_array(C),
                             noise_array(n), noise_array(n), noise_array(rows),
                             noise_array(n), noise_array(n), noise_array(C)};
        check_rms_forward(s, rows, C, &d, false);
        check_rms_forward(s, rows, C, &d, true);
        check_rms_backward(s, rows, C, &d);
        free(d.x), free(d.res), free(d.w), free(d.y), free(d.sum), free(d.rstd), free(d.dy);
        free(d.dx), free(d.dw);
    }
}

/* Pair i of token t is a complex number that turns by e^(i t theta^(-2i/D)). */
static double *turned(const struct rope *r, const float *x, double theta)
{
    double *want = widen(x, r->B * r->T * r->stride);
    for (int64_t bt = 0; bt < r->B * r->T; bt++)
        for (int64_t h = 0; h < r->n_head; h++)
            for (int64_t i = 0; i < r->D / 2; i++) {
                double *at = want + bt * r->stride + h * r->D;
                double *re = r->interleaved ? at + 2 * i : at + i;
                double *im = r->interleaved ? re + 1 : re + r->D / 2;
                double angle = (double)(bt % r->T) / pow(theta, 2.0 * (double)i / (double)r->D);
                double complex z = (*re + *im * I) * cexp((r->inverse ? -I : I) * angle);
                *re = creal(z);
                *im = cimag(z);
            }
    return want;
}

static void check_rope(struct stream *s, const struct rope *shape)
{
    struct rope r = *shape;
    int64_t n = r.B * r.T * r.stride;
    float *table = noise_array(r.T * r.D), *x = noise_array(n), *old = copy_array(x, n);
    s->k->rope_table(s, table, r.T, r.D, 10000.0);
    double *want = turned(&r, x, 10000.0), *back = widen(x, n);
    s->k->rope(s, x, table, &r);
    CHECK_CLOSE(x, want, n, 1e-6);
    for (int64_t e = 0; e < n; e++) /* what lies between the heads' rows stays */
        CHECK(e % r.stride < r.n_head * r.D || x[e] == old[e]);
    r.inverse = !r.inverse;
    s->k->rope(s, x, table, &r);
    CHECK_CLOSE(x, back, n, 1e-6);
    free(table), free(x), free(old), free(want), free(back);
}

static void ropes(struct stream *s)
{
    static const struct rope shapes[] = {
        {.B = 0, .T = 3, .n_head = 2, .D = 4, .stride = 8},
        {.B = 1, .T = 1, .n_head = 1, .D = 2, .stride = 2},
        {.B = 2, .T = 5, .n_head = 3, .D = 6, .stride = 25},
        {.B = 2, .T = 70, .n_head = 4, .D = 64, .stride = 300},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int bits = 0; bits < 4; bits++) {
            struct rope r = shapes[i];
            r.interleaved = bits & 1;
            r.inverse = bits & 2;
            check_rope(s, &r);
        }
}

/* A late position's angle is a large number, whose sine must still be right. */
static void late_positions(struct stream *s)
{
    enum { T = 40000, D = 8 };
    float *table = noise_array(T * D);
    s->k->rope_table(s, table, T, D, 500000.0);
    for (int64_t t = 0; t < T; t += 1999)
        for (int64_t i = 0; i < D / 2; i++) {
            long double angle = t * powl(500000.0L, -2.0L * i / D);
            CHECK_NEAR(table[t * D + 2 * i], (double)cosl(angle), 1e-7);
            CHECK_NEAR(table[t * D + 2 * i + 1], (double)sinl(angle), 1e-7);
        }
    free(table);
}

static void check_swiglu(struct stream *s, int64_t rows, int64_t F)
{
    int64_t n = rows * F;
    float *x = noise_array(2 * n), *y = noise_array(n), *dy = noise_array(n);
    float *dx = noise_array(2 * n);
    for (int64_t i = 0; i < 2 * n; i++)
        x[i] = as_elem(4.0f * x[i]);
    double *want = widen(y, n), *want_dx = widen(dx, 2 * n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / F * 2 * F + i % F;
        double g = x[at], u = x[at + F], q = 1.0 / (1.0 + exp(-g));
        want[i] = g * q * u;
        want_dx[at] = dy[i] * u * (q + g * q * (1.0 - q));
        want_dx[at + F] = dy[i] * g * q;
    }
    s->k->swiglu_forward(s, y, x, rows, F);
    CHECK_CLOSE(y, want, n, 3e-7);
    s->k->swiglu_backward(s, dx, dy, x, rows, F);
    CHECK_CLOSE(dx, want_dx, 2 * n, 3e-7);
    float *in_place = copy_array(x, 2 * n), *alone = noise_array(n);
    s->k->swiglu_backward(s, in_place, dy, in_place, rows, F);
    CHECK(same_bits(in_place, dx, 2 * n));
    for (int64_t shift = 0; shift < 64 && shift < F; shift++) { /* the last F - shift of a row */
        float *part = noise_array(2 * F);
        memcpy(part, x + shift, (size_t)(F - shift) * sizeof *part);
        memcpy(part + F - shift, x + F + shift, (size_t)(F - shift) * sizeof *part);
        s->k->swiglu_forward(s, alone, part, rows > 0, F - shift);
        CHECK(rows == 0 || same_bits(alone, y + shift, F - shift));
        free(part);
    }
    free(x), free(y), free(dy), free(dx), free(want), free(want_dx), free(in_place), free(alone);
}

static void swiglus(struct stream *s)
{
    static const int64_t sizes[][2] = {{1, 1}, {2, 5}, {3, 33}, {7, 130}, {300, 128}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_swiglu(s, sizes[i][0], sizes[i][1]);
    s->k->swiglu_forward(s, NULL, NULL, 0, 5);
}

int main(void)
{
    on_every_device("RMS norm", rms_norms);
    on_every_device("rotary positions", ropes);
    on_every_device("late positions", late_positions);
    on_every_device("SwiGLU", swiglus);
    return check_done();
}
