/* Attention against a plain fp64 forward, and its backward against central differences. */
/* RUN: -n 1 */
#include "kernel_test.h"

struct shape_at {
    int64_t B, T, H, n_kv_head, D;
    float p;
};

/* Packed as GPT-2's c_attn: q, then k, then v in each token's row, and three cells unused. */
static int64_t row_len(const struct attention *a)
{
    return a->H * a->D + 2 * a->n_kv_head * a->D + 3;
}

static double keep_factor(const struct attention *a, int64_t b, int64_t e)
{
    uint32_t w[4];
    if (a->drop.p == 0.0f)
        return 1.0;
    rng_block(a->drop.key, (uint64_t)a->drop.sample[b], (uint64_t)e / 4, w);
    return w[e % 4] >= a->drop.p * 0x1p32 ? 1.0 / (1.0 - a->drop.p) : 0.0;
}

/* y (T, D) and lse (T) of one head of one sample. */
static void head_f64(const struct attention *a, const double *x, int64_t b, int64_t h, double *y,
                     double *lse)
{
    int64_t L = row_len(a), kv = h / (a->H / a->n_kv_head);
    const double *q = x + h * a->D, *k = x + (a->H + kv) * a->D;
    const double *v = k + a->n_kv_head * a->D;
    double *p = calloc((size_t)a->T, sizeof *p);
    for (int64_t t = 0; t < a->T; t++) {
        double sum = 0.0, *to = y + t * a->D;
        for (int64_t u = 0; u <= t; u++) {
            double dot = 0.0;
            for (int64_t d = 0; d < a->D; d++)
                dot += q[t * L + d] * k[u * L + d];
            p[u] = exp(dot * a->scale);
            sum += p[u];
        }
        lse[t] = log(sum);
        memset(to, 0, (size_t)a->D * sizeof *to);
        for (int64_t u = 0; u <= t; u++) {
            double f = p[u] / sum * keep_factor(a, b, (h * a->T + t) * a->T + u);
            for (int64_t d = 0; d < a->D; d++)
                to[d] += f * v[u * L + d];
        }
    }
    free(p);
}

/* Σ y dy over the heads of one sample. */
static double sample_f64(const struct attention *a, const double *x, int64_t b, const float *dy)
{
    double *y = calloc((size_t)(a->T * a->D), sizeof *y), sum = 0.0;
    double *lse = calloc((size_t)a->T, sizeof *lse);
    for (int64_t h = 0; h < a->H; h++) {
        head_f64(a, x, b, h, y, lse);
        for (int64_t i = 0; i < a->T * a->D; i++)
            sum += y[i] * dy[((b * a->T + i / a->D) * a->H + h) * a->D + i % a->D];
    }
    free(y);
    free(lse);
    return sum;
}

static void check_forward(const struct attention *a, const double *x, const float *y,
                          const float *lse)
{
    double *want = calloc((size_t)(a->T * a->D), sizeof *want);
    double *want_lse = calloc((size_t)a->T, sizeof *want_lse);
    float *got = calloc((size_t)(a->T * a->D), sizeof *got);
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t h = 0; h < a->H; h++) {
            head_f64(a, x + b * a->T * row_len(a), b, h, want, want_lse);
            for (int64_t i = 0; i < a->T * a->D; i++)
                got[i] = y[((b * a->T + i / a->D) * a->H + h) * a->D + i % a->D];
            CHECK_CLOSE(got, want, a->T * a->D, 2e-6);
            CHECK_CLOSE(lse + (b * a->H + h) * a->T, want_lse, a->T, 2e-6);
        }
    free(want), free(want_lse), free(got);
}

/* Every every-th element of dx against a central difference. */
static void check_slopes(const struct attention *a, double *x, const float *dx, const float *dy,
                         int64_t every)
{
    int64_t L = row_len(a), n = a->B * a->T * L, m = 0;
    double *want = calloc((size_t)n + 1, sizeof *want), h = 1e-5;
    float *got = calloc((size_t)n + 1, sizeof *got);
    for (int64_t e = 0; e < n; e += every) {
        if (e % L >= L - 3)
            continue; /* an unused cell */
        int64_t b = e / L / a->T;
        double old = x[e], *from = x + b * a->T * L;
        x[e] = old + h;
        double up = sample_f64(a, from, b, dy);
        x[e] = old - h;
        want[m] = (up - sample_f64(a, from, b, dy)) / (2.0 * h);
        got[m++] = dx[e];
        x[e] = old;
    }
    CHECK_CLOSE(got, want, m, 3e-6);
    free(want), free(got);
}

static void check_attention(struct stream *s, struct shape_at z, int64_t every)
{
    static const int64_t sample[] = {3, 1ll << 35, 7};
    struct attention a = {.B = z.B,
                          .T = z.T,
                          .H = z.H,
                          .n_kv_head = z.n_kv_head,
                          .D = z.D,
                          .scale = 1.5f / sqrtf((float)z.D)};
    a.drop = (struct dropout){.p = z.p, .key = rng_key_make(8, 9), .sample = sample};
    int64_t L = row_len(&a), n = a.B * a.T * L, n_y = a.B * a.T * a.H * a.D;
    int64_t k_at = a.H * a.D, v_at = k_at + a.n_kv_head * a.D;
    a.q_stride = a.kv_stride = L;
    float *x = noise_array(n), *y = noise_array(n_y), *lse = noise_array(a.B * a.H * a.T);
    float *dy = noise_array(n_y), *dx = noise_array(n), *old = copy_array(dx, n);
    double *wide = widen(x, n);
    size_t scratch_bytes = s->k->attention_scratch(&a, s->dev->n_threads);
    float *scratch = aligned_alloc(64, (scratch_bytes + 63) / 64 * 64);
    for (size_t i = 0; i < scratch_bytes / 4; i++)
        scratch[i] = NAN; /* nobody promised zeros */
    s->k->attention_forward(s, &a, y, lse, x, x + k_at, x + v_at, scratch);
    check_forward(&a, wide, y, lse);
    s->k->attention_backward(s, &a, dx, dx + k_at, dx + v_at, dy, y, lse, x, x + k_at, x + v_at,
                             scratch);
    check_slopes(&a, wide, dx, dy, every);
    for (int64_t e = 0; e < n; e++)
        CHECK(e % L < L - 3 || dx[e] == old[e]);
    free(x), free(y), free(lse), free(dy), free(dx), free(old), free(wide), free(scratch);
}

static void attentions(struct stream *s)
{
    static const struct shape_at small[] = {
        {0, 5, 2, 2, 4, 0.0f},  {1, 1, 1, 1, 1, 0.0f},  {2, 1, 2, 2, 3, 0.0f},
        {2, 5, 2, 2, 4, 0.0f},  {1, 17, 2, 1, 3, 0.0f}, {1, 34, 1, 1, 5, 0.0f},
        {2, 6, 4, 2, 18, 0.0f}, {3, 7, 2, 1, 4, 0.4f},  {1, 35, 1, 1, 4, 0.2f},
    };
    static const struct shape_at large[] = {
        {2, 100, 4, 2, 20, 0.1f}, {1, 130, 2, 2, 64, 0.0f}, {3, 64, 4, 4, 32, 0.0f},
        {1, 33, 1, 1, 256, 0.0f}, {2, 96, 3, 3, 33, 0.5f},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        check_attention(s, small[i], 1);
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        check_attention(s, large[i], 997);
}

/* On two threads, and for a sample alone, the bits are the same. */
static void alone(struct stream *s)
{
    enum { B = 3, T = 70, H = 4, D = 24, L = 3 * H * D };
    static const int64_t sample[B] = {3, 4, 5};
    struct attention a = {.B = B,
                          .T = T,
                          .H = H,
                          .n_kv_head = H,
                          .D = D,
                          .q_stride = L,
                          .kv_stride = L,
                          .scale = 0.2f};
    a.drop = (struct dropout){.p = 0.25f, .key = rng_key_make(8, 9), .sample = sample};
    float *x = noise_array(B * T * L), *y[2], *lse[2], *dx[2], *dy = noise_array(B * T * H * D);
    size_t n_bytes = s->k->attention_scratch(&a, s->dev->n_threads);
    float *scratch = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    for (int i = 0; i < 2; i++) {
        y[i] = noise_array(B * T * H * D);
        lse[i] = noise_array(B * H * T);
        dx[i] = noise_array(B * T * L);
        a.B = i ? 1 : B;
        for (int64_t b = 0; b < B; b += a.B) {
            float *q = x + b * T * L, *dq = dx[i] + b * T * L, *out = y[i] + b * T * H * D;
            a.drop.sample = sample + b;
            s->k->attention_forward(s, &a, out, lse[i] + b * H * T, q, q + H * D, q + 2 * H * D,
                                    scratch);
            s->k->attention_backward(s, &a, dq, dq + H * D, dq + 2 * H * D, dy + b * T * H * D, out,
                                     lse[i] + b * H * T, q, q + H * D, q + 2 * H * D, scratch);
        }
    }
    CHECK(same_bits(y[0], y[1], B * T * H * D));
    CHECK(same_bits(lse[0], lse[1], B * H * T));
    CHECK(same_bits(dx[0], dx[1], B * T * L));
    for (int i = 0; i < 2; i++)
        free(y[i]), free(lse[i]), free(dx[i]);
    free(x), free(dy), free(scratch);
}

int main(void)
{
    on_every_device("attention", attentions);
    on_every_device("a sample alone", alone);
    return check_done();
}
