/* Kernels over flat ranges and rows against plain loops in fp64: optimizers, embedding, dropout,
 * sums, filling; and the same bits wherever an element lies. */
/* RUN: -n 1 */
#include "kernel_test.h"
#include "tensor/half.h"

static const int64_t lengths[] = {0, 1, 3, 63, 64, 65, 1000, 1024, 1025, 40007};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static void check_adamw(struct stream *s, int64_t n, const struct adamw *h)
{
    float *p = noise_array(n), *m = noise_array(n), *v = noise_array(n), *g = noise_array(n);
    for (int64_t i = 0; i < n; i++)
        v[i] = fabsf(v[i]);
    double *wp = widen(p, n), *wm = widen(m, n), *wv = widen(v, n);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)g[i] * h->grad_scale;
        if (h->decoupled)
            wp[i] *= 1.0 - (double)h->lr * h->weight_decay;
        else
            d += h->weight_decay * wp[i];
        wm[i] = h->beta1 * wm[i] + (1.0 - h->beta1) * d;
        wv[i] = h->beta2 * wv[i] + (1.0 - h->beta2) * d * d;
        wp[i] -= h->lr * (wm[i] / h->correction1) / (sqrt(wv[i] / h->correction2) + h->eps);
    }
    s->k->adamw(s, p, m, v, g, NULL, n, h);
    CHECK_CLOSE(p, wp, n, 3e-7);
    CHECK_CLOSE(m, wm, n, 3e-7);
    CHECK_CLOSE(v, wv, n, 3e-7);
    free(p), free(m), free(v), free(g), free(wp), free(wm), free(wv);
}

static void check_sgd(struct stream *s, int64_t n, const struct sgd *h)
{
    float *p = noise_array(n), *b = noise_array(n), *g = noise_array(n);
    double *wp = widen(p, n), *wb = widen(b, n);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)g[i] * h->grad_scale + h->weight_decay * wp[i];
        if (h->momentum != 0.0f) {
            wb[i] = h->first ? d : h->momentum * wb[i] + (1.0 - h->dampening) * d;
            d = h->nesterov ? d + h->momentum * wb[i] : wb[i];
        }
        wp[i] -= h->lr * d;
    }
    s->k->sgd(s, p, h->momentum != 0.0f ? b : NULL, g, NULL, n, h);
    CHECK_CLOSE(p, wp, n, 3e-7);
    CHECK_CLOSE(b, wb, n, 3e-7);
    free(p), free(b), free(g), free(wp), free(wb);
}

static void optimizers(struct stream *s)
{
    for (int i = 0; i < N_LENGTHS; i++) {
        struct adamw a = {.lr = 0.1f,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .eps = 1e-3f,
                          .weight_decay = 0.3f,
                          .grad_scale = 0.7f,
                          .correction1 = 0.19f,
                          .correction2 = 0.01f,
                          .decoupled = true};
        check_adamw(s, lengths[i], &a);
        a.decoupled = false;
        check_adamw(s, lengths[i], &a);
        struct sgd g = {.lr = 0.1f, .weight_decay = 0.2f, .grad_scale = 0.5f, .first = true};
        check_sgd(s, lengths[i], &g);
        g.momentum = 0.9f;
        g.dampening = 0.3f;
        check_sgd(s, lengths[i], &g);
        g.first = false;
        check_sgd(s, lengths[i], &g);
        g.nesterov = true;
        g.dampening = 0.0f;
        check_sgd(s, lengths[i], &g);
    }
}

static void check_embedding(struct stream *s, int64_t B, int64_t T, int64_t C, bool place)
{
    enum { V = 11 };
    int64_t n = B * T * C;
    float *wte = noise_array(V * C), *wpe = noise_array(T * C), *y = noise_array(n);
    float *dwte = noise_array(V * C), *dwpe = noise_array(T * C), *dy = noise_array(n);
    double *want = widen(y, n), *we = widen(dwte, V * C), *wp = widen(dwpe, T * C);
    int32_t *ids = calloc((size_t)(B * T) + 1, sizeof *ids);
    for (int64_t i = 0; i < B * T; i++)
        ids[i] = (int32_t)(i * i % V);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = i % C, t = i / C % T, e = ids[i / C] * C + c;
        want[i] = wte[e] + (place ? (double)wpe[t * C + c] : 0.0);
        we[e] += dy[i];
        wp[t * C + c] += place ? (double)dy[i] : 0.0;
    }
    s->k->embedding_forward(s, y, ids, wte, place ? wpe : NULL, B, T, C);
    CHECK_CLOSE(y, want, n, 1e-7);
    s->k->embedding_backward(s, dwte, place ? dwpe : NULL, dy, ids, B, T, C, V);
    CHECK_CLOSE(dwte, we, V * C, 3e-6);
    CHECK_CLOSE(dwpe, wp, T * C, 3e-6);
    s->k->embedding_backward(s, NULL, NULL, dy, ids, B, T, C, V);
    free(wte), free(wpe), free(y), free(dwte), free(dwpe), free(dy);
    free(want), free(we), free(wp), free(ids);
}

static void embeddings(struct stream *s)
{
    check_embedding(s, 0, 4, 5, true);
    check_embedding(s, 1, 1, 1, false);
    check_embedding(s, 2, 3, 17, true);
    check_embedding(s, 3, 100, 130, true);
    check_embedding(s, 3, 100, 130, false);
}

/* Element e of sample i is kept where word e of the key's sequence is at least p 2^32. */
static void dropouts(struct stream *s)
{
    static const int64_t sample[] = {5, 0, 1ll << 40};
    static const int64_t sizes[] = {1, 7, 1023, 1026, 12001};
    for (int i = 0; i < 5; i++) {
        int64_t n = sizes[i], kept = 0;
        struct dropout d = {.p = 0.3f, .key = rng_key_make(1, 2), .sample = sample};
        float *x = noise_array(3 * n), *y = noise_array(3 * n);
        double *want = widen(x, 3 * n);
        for (int64_t e = 0; e < 3 * n; e++) {
            uint32_t w[4];
            rng_block(d.key, (uint64_t)sample[e / n], (uint64_t)(e % n) / 4, w);
            bool keep = w[e % n % 4] >= 0.3f * 0x1p32;
            want[e] = keep ? want[e] / (1.0 - 0.3) : 0.0;
            kept += keep;
        }
        s->k->dropout(s, y, x, &d, 3, n);
        CHECK_CLOSE(y, want, 3 * n, 3e-7);
        if (n > 10000)
            CHECK_NEAR((double)kept / (3.0 * (double)n), 0.7, 0.02);
        float *in_place = copy_array(x, 3 * n);
        s->k->dropout(s, in_place, in_place, &d, 3, n);
        CHECK(same_bits(in_place, y, 3 * n));
        s->k->dropout(s, NULL, NULL, &d, 0, n);
        d.p = 0.0f;
        s->k->dropout(s, y, x, &d, 3, n);
        CHECK(same_bits(y, x, 3 * n));
        free(x), free(y), free(want), free(in_place);
    }
}

static void sums(struct stream *s)
{
    for (int i = 0; i < N_LENGTHS; i++) {
        int64_t n = lengths[i], n_blocks = (n + BLOCK_ELEMS - 1) / BLOCK_ELEMS, bad = 5;
        float *x = noise_array(n), *y = noise_array(n), *z = copy_array(y, n);
        double *want = widen(x, n), sum = 0.5, want_sum = 0.5;
        double *block = calloc((size_t)n_blocks + 1, sizeof *block);
        for (int64_t e = 0; e < n; e++) {
            want[e] += y[e];
            want_sum += x[e];
        }
        s->k->accumulate(s, z, x, n);
        CHECK_CLOSE(z, want, n, 1e-7);
        float *half = copy_array(x, n);
        s->k->scale(s, half, 0.5f, n);
        for (int64_t e = 0; e < n; e++)
            CHECK(half[e] == 0.5f * x[e]);
        free(half);
        s->k->add(s, y, y, x, n);
        CHECK_CLOSE(y, want, n, 1e-7);
        float *product = copy_array(y, n);
        s->k->multiply(s, product, x, n);
        for (int64_t e = 0; e < n; e++)
            CHECK(product[e] == as_elem(y[e] * x[e]));
        free(product);
        int64_t N = n % 2 == 0 ? 2 : 1, ldy = N + 3;
        float *wide = noise_array(n / N * ldy), *had = copy_array(wide, n / N * ldy);
        s->k->add_scaled(s, wide, ldy, x, 0.25f, n / N, N);
        for (int64_t e = 0; e < n / N * ldy; e++) {
            int64_t m = e / ldy, j = e % ldy;
            double to = j < N ? had[e] + 0.25 * x[m * N + j] : had[e];
            CHECK_NEAR(wide[e], to, j < N ? allowed(1e-6) * 2 : 0);
        }
        free(wide), free(had);
        s->k->sum_f64(s, &sum, x, n);
        CHECK(sum == want_sum);
        s->k->square_sums(s, block, x, n);
        for (int64_t b = 0; b < n_blocks; b++) {
            double squares = 0.0;
            for (int64_t e = b * BLOCK_ELEMS; e < n && e < (b + 1) * BLOCK_ELEMS; e++)
                squares += (double)x[e] * x[e];
            CHECK_NEAR(block[b], squares, 1e-12 * squares);
        }
        s->k->count_nonfinite(s, &bad, x, n);
        CHECK(bad == 5);
        if (n >= 63) {
            x[0] = NAN;
            x[n / 2] = -INFINITY;
            x[n - 1] = INFINITY;
            s->k->count_nonfinite(s, &bad, x, n);
            CHECK(bad == 8);
        }
        free(x), free(y), free(z), free(want), free(block);
    }
}

/* Filling anywhere gives base/rng.h's numbers. */
static void filling(struct stream *s)
{
    enum { N = 50000 };
    struct rng_key key = rng_key_make(3, 4);
    float *want = noise_array(N), *got = noise_array(N);
    for (int kind = INIT_CONST; kind <= INIT_UNIFORM; kind++) {
        struct init_rule rule = {(enum init_kind)kind, -0.5f, 2.0f};
        for (int i = 0; i < N; i++)
            want[i] = -0.5f;
        if (kind == INIT_NORMAL)
            rng_fill_normal(key, 0, N, -0.5f, 2.0f, want);
        if (kind == INIT_UNIFORM)
            rng_fill_uniform(key, 0, N, -0.5f, 2.0f, want);
        for (int64_t first = 0; first < 64; first += 7) {
            s->k->fill(s, got, &rule, key, first, N - first);
            CHECK(same_bits(got, want + first, N - first));
        }
    }
    s->k->fill(s, got, &(struct init_rule){INIT_CONST, 1.0f, 0.0f}, key, 0, 0);
    free(want), free(got);
}

/* Orthonormal, and spanning what they did; one that has nothing of its own is 0. */
static void orthonormal(struct stream *s)
{
    enum { N = 37, R = 5 };
    for (int columns = 0; columns < 2; columns++) {
        int64_t step = columns ? R : 1, next = columns ? 1 : N;
        float *v = noise_array(N * R), *was = copy_array(v, N * R);
        for (int64_t i = 0; i < N; i++) /* the fourth is made of the second and third */
            v[i * step + 3 * next] = 2 * v[i * step + next] - v[i * step + 2 * next];
        s->k->orthonormalize(s, v, N, R, step, next);
        for (int64_t a = 0; a < R; a++)
            for (int64_t b = 0; b <= a; b++) {
                double dot = 0;
                for (int64_t i = 0; i < N; i++)
                    dot += (double)v[i * step + a * next] * v[i * step + b * next];
                CHECK_NEAR(dot, a == b && a != 3, 1e-6);
            }
        double left = 0; /* of the fifth behind its parts along the others */
        for (int64_t i = 0; i < N; i++) {
            double x = was[i * step + 4 * next];
            for (int64_t b = 0; b < R; b++) {
                double dot = 0;
                for (int64_t j = 0; j < N; j++)
                    dot += (double)was[j * step + 4 * next] * v[j * step + b * next];
                x -= dot * v[i * step + b * next];
            }
            left = fmax(left, fabs(x));
        }
        CHECK_NEAR(left, 0, 1e-5);
        free(v), free(was);
    }
}

/* Cut off the first `shift` elements: the others must not notice. */
static void shifts(struct stream *s)
{
    enum { N = 333 };
    struct adamw a = {.lr = 0.1f,
                      .beta1 = 0.9,
                      .beta2 = 0.999,
                      .eps = 1e-8f,
                      .weight_decay = 0.3f,
                      .grad_scale = 0.7f,
                      .correction1 = 0.19f,
                      .correction2 = 0.01f,
                      .decoupled = true};
    struct sgd h = {
        .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.2f, .grad_scale = 0.5f, .nesterov = true};
    float *x[6], *whole[6], *part[6];
    for (int i = 0; i < 6; i++) {
        x[i] = noise_array(N);
        for (int e = 0; e < N && i == 2; e++)
            x[i][e] = fabsf(x[i][e]);
        whole[i] = copy_array(x[i], N);
        part[i] = noise_array(N);
    }
    for (int shift = 0; shift < 64; shift++) {
        int64_t n = N - shift;
        float **to = shift ? part : whole;
        for (int i = 0; i < 6; i++)
            memcpy(to[i], x[i] + shift, (size_t)n * sizeof(float));
        s->k->adamw(s, to[0], to[1], to[2], x[3] + shift, NULL, n, &a);
        s->k->sgd(s, to[3], to[4], x[5] + shift, NULL, n, &h);
        s->k->accumulate(s, to[5], x[0] + shift, n);
        for (int i = 0; i < 6; i++)
            CHECK(same_bits(to[i], whole[i] + shift, n));
    }
    for (int i = 0; i < 6; i++)
        free(x[i]), free(whole[i]), free(part[i]);
}

/* To nearest, ties to even, by counting: the float is between two bf16 values, and the nearer one
 * is found from their distances in fp64. */
static float nearest(float f)
{
    if (test_dtype == DTYPE_F32 || isnan(f) || isinf(f))
        return f;
    if (test_dtype == DTYPE_F16)
        return as_elem(f);
    uint32_t u, v;
    memcpy(&u, &f, sizeof u);
    float low, high;
    u &= 0xFFFF0000u;
    v = u + 0x10000u;
    memcpy(&low, &u, sizeof low);
    memcpy(&high, &v, sizeof high);
    double top = isinf(high) ? copysign(0x1p128, f) : high;
    double down = fabs((double)f - low), up = fabs(top - f);
    return down < up || (down == up && !(u & 0x10000u)) ? low : high;
}

static void casts(struct stream *s)
{
    static const uint32_t odd[] = {
        0x00000000,
        0x80000000,
        0x3F808000,
        0x3F818000,
        0x3F808001,
        0x3F807FFF,
        0xBF818000,
        0x00000001,
        0x00008000,
        0x00018000,
        0x80008001,
        0x007FFFFF,
        0x7F7FFFFF,
        0xFF7F8000,
        0x7F7F7FFF,
        0x7F800000,
        0xFF800000,
        0x7F800001,
        0x7FFFFFFF,
        0xFFFFFFFF,
        0xFF80FFFF,
        /* halves: 65504, 65519.996, 65520, 2^-14 and below, 2^-25, 1.5 2^-24, 1 + 2^-11 */
        0x477FE000,
        0x477FEFFF,
        0x477FF000,
        0x38800000,
        0x387FFFFF,
        0x387FE000,
        0x33000000,
        0x33000001,
        0x33C00000,
        0xB3C00000,
        0x3F801000,
        0x3F803000,
        0x32FFFFFF,
    };
    enum { N_ODD = sizeof odd / sizeof *odd, N = 40000 };
    float *x = noise_array(N), *y = noise_array(N), *z = noise_array(N);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t bits = i < N_ODD ? odd[i] : i * 2654435761u;
        memcpy(x + i, &bits, sizeof bits);
    }
    s->k->cast(s, y, x, N);
    for (int64_t i = 0; i < N; i++) {
        float want = nearest(x[i]);
        CHECK(isnan(want) ? isnan(y[i]) : same_bits(y + i, &want, 1));
        y[i] = isnan(y[i]) ? 1.0f : y[i]; /* a NaN's bits are nobody's promise */
    }
    for (int64_t shift = 1; shift < 64; shift++) {
        s->k->cast(s, z, x + shift, N - shift);
        for (int64_t i = 0; i < N - shift; i++)
            z[i] = isnan(z[i]) ? 1.0f : z[i];
        CHECK(same_bits(z, y + shift, N - shift));
    }
    free(x), free(y), free(z);
}

/* The copy is the new p, rounded; and p does not notice it. */
static void copies(struct stream *s)
{
    struct adamw a = {.lr = 0.1f,
                      .beta1 = 0.9,
                      .beta2 = 0.99,
                      .eps = 1e-3f,
                      .grad_scale = 0.7f,
                      .correction1 = 0.19f,
                      .correction2 = 0.01f,
                      .decoupled = true};
    struct sgd plain = {.lr = 0.1f, .grad_scale = 0.5f}, h = plain;
    h.momentum = 0.9f;
    for (int i = 0; i < N_LENGTHS; i++) {
        int64_t n = lengths[i];
        float *g = noise_array(n), *p[2], *m[2], *v[2], *copy = noise_array(n);
        for (int k = 0; k < 2; k++) {
            p[k] = k ? copy_array(p[0], n) : noise_array(n);
            m[k] = k ? copy_array(m[0], n) : noise_array(n);
            v[k] = calloc((size_t)n + 1, sizeof(float));
        }
        for (int which = 0; which < 3; which++) {
            for (int k = 0; k < 2; k++)
                if (which == 0)
                    s->k->adamw(s, p[k], m[k], v[k], g, k ? copy : NULL, n, &a);
                else
                    s->k->sgd(s, p[k], which == 1 ? m[k] : NULL, g, k ? copy : NULL, n,
                              which == 1 ? &h : &plain);
            CHECK(same_bits(p[0], p[1], n) && same_bits(m[0], m[1], n));
            for (int64_t e = 0; e < n; e++)
                CHECK(copy[e] == nearest(p[1][e]));
        }
        for (int k = 0; k < 2; k++)
            free(p[k]), free(m[k]), free(v[k]);
        free(g), free(copy);
    }
}

/* A copy too large for caches, which lies at a cache line and does not end with one. */
static void large_copy(struct stream *s)
{
    const int64_t n = ((int64_t)1 << 23) + 75;
    struct adamw a = {.lr = 0.1f,
                      .beta1 = 0.9,
                      .beta2 = 0.99,
                      .eps = 1e-8f,
                      .grad_scale = 1.0f,
                      .correction1 = 1.0f,
                      .correction2 = 1.0f};
    size_t n_bytes = (size_t)(n + 64) / 16 * 64;
    float *p = calloc(1, n_bytes), *m = calloc(1, n_bytes), *v = calloc(1, n_bytes);
    float *g = noise_array(n), *copy = aligned_alloc(64, n_bytes);
    int64_t wrong = 0;
    for (int64_t e = 0; e < n; e++)
        copy[e] = 7.0f;
    copy[n] = 5.0f;
    s->k->adamw(s, p, m, v, g, copy, n, &a);
    for (int64_t e = 0; e < n; e++)
        wrong += copy[e] != nearest(p[e]) || (p[e] == 0.0f && g[e] != 0.0f);
    CHECK(wrong == 0 && copy[n] == 5.0f);
    free(p), free(m), free(v), free(g), free(copy);
}

/* Spans of every size, across the ranges that threads take. */
static void check_gather(struct stream *s)
{
    enum { N = 7, ROOM = 5 << 20 };
    static const size_t n_bytes[N] = {100, 0, 3 << 20, 1, 4097, ROOM, 77};
    struct memory_span span[N];
    char *from = malloc(ROOM), *want = malloc(2 * ROOM), *got = malloc(2 * ROOM);
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (char)(i * 2654435761u >> 13);
    for (int n = 0; n <= N; n++) {
        size_t at = 0;
        for (int i = 0; i < n; i++) {
            span[i] = (struct memory_span){from + (ROOM - n_bytes[i]) / 2, n_bytes[i]};
            memcpy(want + at, span[i].at, n_bytes[i]);
            at += n_bytes[i];
        }
        memset(got, 0, at + 1);
        s->dev->mem->gather(s, got, span, n);
        CHECK(memcmp(got, want, at) == 0 && got[at] == 0);
    }
    free(from), free(want), free(got);
}

static void tables(struct stream *s)
{
    CHECK(kernels_missing(s->k) == NULL);
    const struct kernels *null = device_null_kernels(s->dev, DTYPE_F32);
    CHECK(kernels_missing(null) == NULL);
    CHECK(device_kernels(s->dev, DTYPE_F64) == NULL);
    struct kernels hole = *s->k;
    hole.sgd = NULL;
    CHECK_STR(kernels_missing(&hole), "sgd");
    hole = *s->k;
    hole.attention_scratch = NULL;
    CHECK_STR(kernels_missing(&hole), "attention_scratch");
    struct attention a = {.B = 2, .T = 20, .H = 2, .n_kv_head = 2, .D = 8};
    CHECK(null->attention_scratch(&a, 3) == s->k->attention_scratch(&a, 3));
    CHECK(null->attention_scratch(&a, 3) > 0);
    struct linear l = {.M = 20, .N = 30, .K = 40};
    struct stream dry = {.dev = s->dev, .k = device_null_kernels(s->dev, DTYPE_F16)};
    stack_init_counting(&dry.scratch);
    dry.k->linear_forward(&dry, &l, NULL, NULL, NULL, NULL, NULL);
    CHECK(dry.scratch.peak == dry.k->linear_scratch(s->dev, &l) && dry.scratch.top == 0);
    CHECK(dry.scratch.peak >= (20 * 40 + 40 * 30 + 20 * 30) * sizeof(float));
    l.N = 50;
    dry.k->linear_backward(&dry, &l, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CHECK(dry.scratch.peak == dry.k->linear_scratch(s->dev, &l) && dry.scratch.top == 0);
    CHECK(null->linear_scratch(s->dev, &l) == 0);             /* fp32 is multiplied as it lies */
    null->add(s, (void *)64, (void *)128, (void *)192, 1000); /* touches nothing */
    char *p = s->dev->mem->alloc(10000);
    CHECK(p && (uintptr_t)p % 4096 == 0 && p[0] == 0 && p[9999] == 0);
    char host[100];
    memset(host, 7, sizeof host);
    s->dev->mem->to_device(s, p, host, sizeof host);
    s->dev->mem->zero(s, p, 50);
    s->dev->mem->to_host(s, host, p, sizeof host);
    CHECK(host[49] == 0 && host[50] == 7);
    s->dev->mem->free(p, 10000);
    check_gather(s);
}

int main(void)
{
    on_every_device("tables", tables);
    on_every_device("optimizers", optimizers);
    on_every_device("embedding", embeddings);
    on_every_device("dropout", dropouts);
    on_every_device("sums", sums);
    on_every_device("casts", casts);
    on_every_device("copies of the new parameters", copies);
    on_every_device("a copy past the caches", large_copy);
    on_every_device("orthonormal vectors", orthonormal);
    on_every_device("fill", filling);
    on_every_device("shifted ranges", shifts);
    return check_done();
}
