/* Every layer's gradients against central differences of its own forward.
 *
 * The differences are taken at two steps h and 2h and combined so that the error falls with h^4
 * (Richardson): at h = 0.03 about 1e-6 of it is left, and fp32 rounding divided by h is some 1e-5,
 * both relative to a tensor's largest gradient.  The tolerance is ten times the sum.
 * RUN: -n 1 */
#include "check.h"
#include "unit/model_run.h"

static const double STEP = 0.03, TOLERANCE = 2e-4;

enum { B = 2, T = 5, C = 8, N_MAX = 64 * 32, STREAM_TEST = 7 };

static const int32_t ids[B * T] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
static const int32_t targets[B * T] = {1, 4, 1, 5, 9, 2, -1, 5, 3, 0};
static const int64_t samples[B] = {11, 12};
static const struct batch tokens = {
    .B = B, .T = T, .ids = ids, .targets = targets, .sample = samples, .n_valid = B * T - 1};

/* The function under test is sum of c · y for an output, or the summed loss for a head. */
struct probe {
    struct run r;
    const struct batch *b;
    bool head;
    int64_t n_x, n_y;
    float x[N_MAX], y[N_MAX], c[N_MAX];
    float base[N_MAX]; /* what dx held before: backward of a norm adds to it */
    bool adds;
};

static double value(struct probe *q, const float *base_y)
{
    q->r.loss = 0;
    float *grads[64];
    q->r.p.training = true;
    memcpy(grads, q->r.grad, (size_t)q->r.table->n_rows * sizeof *grads);
    memset(q->r.grad, 0, (size_t)q->r.table->n_rows * sizeof *grads); /* a head's are not wanted */
    size_t tape = q->r.tape.top, frames = q->r.frames.top;
    module_forward(q->r.root, &q->r.p, q->n_x ? q->x : NULL, q->y);
    stack_release(&q->r.tape, tape);
    stack_release(&q->r.frames, frames);
    memcpy(q->r.grad, grads, (size_t)q->r.table->n_rows * sizeof *grads);
    if (q->head)
        return q->r.loss;
    double sum = 0;
    for (int64_t i = 0; i < q->n_y; i++)
        sum += (double)q->c[i] * ((double)q->y[i] - (double)base_y[i]);
    return sum;
}

static double slope(struct probe *q, float *at, const float *base_y)
{
    float x = *at;
    double d[2];
    for (int i = 0; i < 2; i++) {
        float up = x + (float)((i + 1) * STEP), down = x - (float)((i + 1) * STEP);
        *at = up;
        double high = value(q, base_y);
        *at = down;
        d[i] = (high - value(q, base_y)) / ((double)up - (double)down);
    }
    *at = x;
    return (4 * d[0] - d[1]) / 3;
}

static void compare(struct probe *q, float *at, const float *got, int64_t n_elem, const char *name)
{
    static float base_y[N_MAX], want[N_MAX];
    memset(base_y, 0, sizeof base_y);
    value(q, base_y);
    memcpy(base_y, q->y, sizeof base_y);
    for (int64_t i = 0; i < n_elem; i++)
        want[i] = (float)slope(q, at + i, base_y);
    double worst = run_difference(got, want, n_elem);
    check_that(worst <= TOLERANCE, __FILE__, __LINE__, "%s: off by %.3g of the largest", name,
               worst);
}

static void check_gradients(struct probe *q, struct builder *b, struct module *m)
{
    static float dx[N_MAX], dy[N_MAX];
    run_init(&q->r, b->table, m);
    rng_fill_normal(rng_key_make(1, STREAM_TEST), 0, N_MAX, 0, 1, q->x);
    rng_fill_normal(rng_key_make(2, STREAM_TEST), 0, N_MAX, 0, 1, q->c);
    rng_fill_normal(rng_key_make(3, STREAM_TEST), 0, N_MAX, 0, 1, q->base);
    memcpy(dy, q->c, sizeof dy);
    memcpy(dx, q->base, sizeof dx);
    for (int i = 0; i < b->table->n_rows; i++) /* gradients add to what is there */
        for (int64_t j = 0; j < run_elems(&q->r, i); j++)
            q->r.grad[i][j] = 1.0f;
    const float *x = q->n_x ? q->x : NULL;
    if (q->head) {
        run_pass(&q->r, true, q->b, x, dx, dx, dx);
        memcpy(q->y, dx, sizeof dx);
    } else {
        run_pass(&q->r, true, q->b, x, q->y, dy, q->n_x ? dx : NULL);
    }
    CHECK(q->r.tape.top == 0 && q->r.frames.top == 0 && q->r.s.scratch.top == 0);
    CHECK(q->r.tape.peak == q->r.dry_tape && q->r.s.scratch.peak == q->r.dry_scratch);
    if (q->adds)
        for (int64_t i = 0; i < q->n_x; i++)
            dx[i] -= q->base[i];
    if (q->n_x)
        compare(q, q->x, dx, q->n_x, "x");
    for (int i = 0; i < b->table->n_rows; i++) {
        for (int64_t j = 0; j < run_elems(&q->r, i); j++)
            q->r.grad[i][j] -= 1.0f;
        compare(q, q->r.weight[i], q->r.grad[i], run_elems(&q->r, i), b->table->rows[i].name);
    }
    run_clear(&q->r);
}

static struct probe probe;

static void linear(bool in_out, bool bias, enum act_kind act)
{
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    struct builder b = {.arena = a, .table = &table};
    struct init_rule half = {.kind = INIT_NORMAL, .b = 0.5f};
    struct linear_rules init = {.weight = half, .bias = half};
    probe = (struct probe){.b = &tokens, .n_x = B * T * C, .n_y = B * T * 3};
    check_gradients(&probe, &b, linear_new(&b, "fc", C, 3, bias, in_out, act, &init));
    arena_destroy(&a);
}

/* The fused form as a class of its own: y = norm(x + x), so that both ways are seen. */
static void twice_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    void *sum = tape_push(p, pass_rows(p) * C);
    module_forward_residual(m->children[0], p, x, x, sum, y);
    CHECK(p->dry || ((float *)sum)[3] == 2 * ((const float *)x)[3]);
}

static void twice_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                           void *dx)
{
    (void)x;
    size_t mark = stack_mark(&p->s->scratch);
    float *d = scratch_push(p, pass_rows(p) * C);
    pass_zero(p, d, pass_rows(p) * C);
    module_backward(m->children[0], p, dy, d);
    for (int64_t i = 0; !p->dry && i < pass_rows(p) * C; i++)
        ((float *)dx)[i] = 2 * d[i];
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops twice_ops = {
    .cls = "Twice", .forward = twice_forward, .backward = twice_backward};

enum norm { LAYERNORM, LAYERNORM_NO_BIAS, RMSNORM };

static void norms(enum norm norm)
{
    for (int fused = 0; fused < 2; fused++) {
        struct arena *a = arena_create();
        struct tensor_table table = {.arena = a};
        struct builder b = {.arena = a, .table = &table};
        struct module *m = norm == RMSNORM ? rmsnorm_new(&b, "ln", C, 1e-5f)
                                           : layernorm_new(&b, "ln", C, norm == LAYERNORM, 1e-5f);
        if (fused) {
            struct module *twice = module_new(&b, "twice", &twice_ops, NULL, 0, 1);
            twice->children[0] = m;
            twice->n_in = twice->n_out = C;
            m = twice;
        }
        probe = (struct probe){.b = &tokens, .n_x = B * T * C, .n_y = B * T * C, .adds = !fused};
        check_gradients(&probe, &b, m);
        arena_destroy(&a);
    }
}

static void embedding(int64_t positions, float dropout)
{
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    struct builder b = {.arena = a, .table = &table};
    probe = (struct probe){.b = &tokens, .n_y = B * T * C};
    check_gradients(
        &probe, &b,
        embedding_new(&b, "wte", positions ? "wpe" : NULL, 10, positions, C, 0.5f, dropout));
    arena_destroy(&a);
}

static void branches(bool bias, float dropout)
{
    size_t tape[3];
    for (int mlp = 0; mlp < 3; mlp++) {
        struct arena *a = arena_create();
        struct tensor_table table = {.arena = a};
        struct builder b = {.arena = a, .table = &table};
        struct branch br = {.C = C,
                            .bias = bias,
                            .dropout = dropout,
                            .std = 0.4f,
                            .proj_std = 0.4f,
                            .remakes = mlp == 2};
        struct module *m = mlp ? mlp_new(&b, "mlp", &br, 12, ACT_GELU_TANH)
                               : attention_new(&b, "attn", &br, 2, dropout);
        probe = (struct probe){.b = &tokens, .n_x = B * T * C, .n_y = B * T * C};
        check_gradients(&probe, &b, m);
        tape[mlp] = probe.r.dry_tape;
        arena_destroy(&a);
    }
    CHECK(tape[1] >= tape[2] + B * T * 12 * sizeof(float));
}

static const char *const some[] = {"fc", "q", "attn.v"};
static const struct init_rule wide_rule = {.kind = INIT_NORMAL, .b = 0.5f};

/* B's first values are zero, which would hide a wrong gradient of A. */
static void widen_adapters(struct tensor_table *t)
{
    for (int i = 0; i < t->n_rows; i++)
        if (t->rows[i].flags & TENSOR_ADAPTER)
            t->rows[i].init = wide_rule;
}

static void adapted_linear(bool in_out, enum act_kind act, double dropout)
{
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    const struct lora lora = {2, 3, dropout, 3, some};
    struct builder b = {.arena = a, .table = &table, .lora = &lora};
    struct linear_rules init = {.weight = wide_rule, .bias = wide_rule};
    struct module *m = linear_new(&b, "fc", C, 3, true, in_out, act, &init);
    probe = (struct probe){.b = &tokens, .n_x = B * T * C, .n_y = B * T * 3};
    CHECK_STR(table.rows[2].name, "fc.lora_A.weight");
    CHECK_STR(table.rows[3].name, "fc.lora_B.weight");
    widen_adapters(&table);
    check_gradients(&probe, &b, m);
    arena_destroy(&a);
}

/* One as a product of its own, two of three with adapters, one of them frozen apart. */
static void adapted_linears(double dropout, bool mixed)
{
    enum { WIDE = 32 };
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    const struct lora lora = {2, 3, dropout, 3, some};
    struct builder b = {.arena = a, .table = &table, .lora = &lora};
    struct linears l = {.n = 3, .name = {"q", "k", "v"}, .n_out = {WIDE, WIDE, 7}, .std = 0.5f};
    struct module *m = linears_new(&b, "qkv", "attn", WIDE, &l);
    probe = (struct probe){.b = &tokens, .n_x = B * T * WIDE, .n_y = B * T * m->n_out};
    CHECK(table.n_rows == 7 && m->n_children == 2);
    CHECK_STR(table.rows[6].name, "attn.v.lora_B.weight");
    if (mixed)
        table.rows[1].flags |= TENSOR_FROZEN;
    widen_adapters(&table);
    check_gradients(&probe, &b, m);
    arena_destroy(&a);
}

/* With weights W + scale B A an ordinary layer gives the same. */
static void merged(void)
{
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    const struct lora lora = {2, 3, 0, 3, some};
    struct builder b = {.arena = a, .table = &table, .lora = &lora};
    struct linear_rules init = {.weight = wide_rule, .bias = wide_rule};
    struct module *m = linear_new(&b, "fc", C, 3, true, false, ACT_GELU_TANH, &init);
    static float x[B * T * C], y[B * T * 3], want[B * T * 3];
    struct run r;
    widen_adapters(&table);
    run_init(&r, &table, m);
    rng_fill_normal(rng_key_make(1, STREAM_TEST), 0, B * T * C, 0, 1, x);
    run_pass(&r, false, &tokens, x, want, NULL, NULL);
    float *w = r.weight[0], *down = r.weight[2], *up = r.weight[3];
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < C; i++)
            w[o * C + i] += 1.5f * (up[2 * o] * down[i] + up[2 * o + 1] * down[C + i]);
    memset(up, 0, 6 * sizeof *up);
    run_pass(&r, false, &tokens, x, y, NULL, NULL);
    CHECK(run_difference(y, want, B * T * 3) < 1e-6);
    run_clear(&r);
    arena_destroy(&a);
}

/* The middle one too small to be whole blocks, or none. */
static void several_linears(void)
{
    enum { WIDE = 32 };
    size_t scratch[2];
    for (int whole = 0; whole < 2; whole++) {
        struct arena *a = arena_create();
        struct tensor_table table = {.arena = a};
        struct builder b = {.arena = a, .table = &table};
        struct linears l = {
            .n = 3, .name = {"q", "k", "v"}, .n_out = {WIDE, whole ? WIDE : 5, 7}, .std = 0.5f};
        struct module *m = linears_new(&b, "qkv", "attn", WIDE, &l);
        probe = (struct probe){.b = &tokens, .n_x = B * T * WIDE, .n_y = B * T * m->n_out};
        check_gradients(&probe, &b, m);
        CHECK_STR(table.rows[2].name, "attn.v.weight");
        scratch[whole] = probe.r.dry_scratch;
        arena_destroy(&a);
    }
    CHECK(scratch[true] < scratch[false]); /* parts of dx were not added up */
}

/* What the root of a model does for its attention: the table of rotary positions. */
static void positions_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    rope_push(p, *(const int64_t *)m->conf, 100);
    module_forward(m->children[0], p, x, y);
}

static void positions_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                               void *dx)
{
    (void)x;
    module_backward(m->children[0], p, dy, dx);
}

static const struct module_ops positions_ops = {
    .cls = "Positions", .forward = positions_forward, .backward = positions_backward};

/* Heads of 4 for a stream of 8: H D is not C; alone, in pairs and with one pair for all. */
static void rope_attention(const struct branch *br, int64_t n_kv_head, bool interleaved, float drop)
{
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    struct builder b = {.arena = a, .table = &table};
    struct rope_attention r = {
        .H = 4, .n_kv_head = n_kv_head, .D = 4, .interleaved = interleaved, .attn_dropout = drop};
    struct module *m = module_new(&b, "", &positions_ops, &r.D, sizeof r.D, 1);
    m->children[0] = rope_attention_new(&b, "attn", br, &r);
    m->n_in = m->n_out = C;
    probe = (struct probe){.b = &tokens, .n_x = B * T * C, .n_y = B * T * C};
    check_gradients(&probe, &b, m);
    arena_destroy(&a);
}

static void llama_branches(float dropout)
{
    struct branch br = {.C = C, .dropout = dropout, .std = 0.4f, .proj_std = 0.4f};
    for (int64_t n_kv_head = 1; n_kv_head <= 4; n_kv_head *= 2)
        for (int interleaved = 0; interleaved < 2; interleaved++)
            rope_attention(&br, n_kv_head, interleaved, dropout);
    for (int remakes = 0; remakes < 2; remakes++) {
        struct arena *a = arena_create();
        struct tensor_table table = {.arena = a};
        struct builder b = {.arena = a, .table = &table};
        br.remakes = remakes;
        struct module *m = swiglu_new(&b, "mlp", &br, 12);
        probe = (struct probe){.b = &tokens, .n_x = B * T * C, .n_y = B * T * C};
        check_gradients(&probe, &b, m);
        arena_destroy(&a);
    }
}

static void lm_head(float scale)
{
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    struct builder b = {.arena = a, .table = &table};
    probe = (struct probe){.b = &tokens, .n_x = B * T * C, .head = true};
    struct module *m = lm_head_new(&b, "lm_head", -1, C, 10, 0.5f * scale);
    check_gradients(&probe, &b, m);
    arena_destroy(&a);
}

static void losses(void)
{
    static const float values[4 * 3] = {0.5f, -1, 2, 0, 1, 0.25f, 3, -2, 1, 1, 0, -0.5f};
    static const int32_t classes[4] = {2, 0, -1, 1};
    static const int64_t four[4] = {0, 1, 2, 3};
    static const struct batch rows = {
        .B = 4, .targets = classes, .values = values, .sample = four, .n_valid = 4};
    for (int kind = SAMPLE_CLASS; kind <= SAMPLE_REGRESSION; kind++) {
        struct arena *a = arena_create();
        struct tensor_table table = {.arena = a};
        struct builder b = {.arena = a, .table = &table};
        probe = (struct probe){.b = &rows, .n_x = 4 * 3, .head = true};
        check_gradients(&probe, &b, loss_new(&b, "loss", (enum sample_kind)kind, 3));
        arena_destroy(&a);
    }
}

/* More rows than a chunk of logits has, or more columns than a panel, against one product in
 * double. */
static void large_head(int V, int ROWS)
{
    struct arena *a = arena_create();
    struct tensor_table table = {.arena = a};
    struct builder b = {.arena = a, .table = &table};
    struct module *m = lm_head_new(&b, "lm_head", -1, C, V, 0.5f);
    struct run r;
    run_init(&r, &table, m);
    float *x = arena_alloc(a, (size_t)(ROWS * C) * sizeof *x);
    float *dx = arena_alloc(a, (size_t)(ROWS * C) * sizeof *dx);
    float *want_dx = arena_alloc(a, (size_t)(ROWS * C) * sizeof *want_dx);
    float *want_dw = arena_alloc(a, (size_t)(V * C) * sizeof *want_dw);
    double *z = arena_alloc(a, (size_t)V * sizeof *z);
    double *dw = arena_alloc(a, (size_t)(V * C) * sizeof *dw);
    int32_t *target = arena_alloc(a, (size_t)ROWS * sizeof *target);
    rng_fill_normal(rng_key_make(4, STREAM_TEST), 0, ROWS * C, 0, 1, x);
    double loss = 0;
    for (int i = 0; i < ROWS; i++) {
        target[i] = i % 7 == 0 ? -1 : (V - 1 - i * 37 % V);
        const float *w = r.weight[0];
        double sum = 0;
        for (int v = 0; v < V; v++) {
            z[v] = 0;
            for (int c = 0; c < C; c++)
                z[v] += (double)x[i * C + c] * (double)w[v * C + c];
            sum += exp(z[v]);
        }
        double d[C] = {0};
        for (int v = 0; v < V && target[i] >= 0; v++) {
            double g = exp(z[v]) / sum - (v == target[i]);
            for (int c = 0; c < C; c++) {
                d[c] += g * (double)w[v * C + c];
                dw[v * C + c] += g * (double)x[i * C + c];
            }
        }
        loss += target[i] < 0 ? 0 : log(sum) - z[target[i]];
        for (int c = 0; c < C; c++)
            want_dx[i * C + c] = (float)d[c];
    }
    for (int i = 0; i < V * C; i++)
        want_dw[i] = (float)dw[i];
    struct batch batch = {.B = 2, .T = ROWS / 2, .targets = target, .sample = samples};
    run_pass(&r, true, &batch, x, dx, dx, dx);
    CHECK_NEAR(r.loss / loss, 1, 1e-6);
    CHECK(run_difference(dx, want_dx, ROWS * C) < 1e-5);
    CHECK(run_difference(r.grad[0], want_dw, V * C) < 1e-5);
    if (ROWS > 512)
        CHECK(r.dry_scratch < (size_t)(ROWS * V) * sizeof(float)); /* never whole */
    r.loss = 0;
    run_pass(&r, false, &batch, x, NULL, NULL, NULL);
    CHECK_NEAR(r.loss / loss, 1, 1e-6);
    run_clear(&r);
    arena_destroy(&a);
}

int main(void)
{
    TEST ("Linear, both orientations, with and without bias") {
        linear(true, true, ACT_NONE);
        linear(false, true, ACT_NONE);
        linear(true, false, ACT_NONE);
        linear(false, false, ACT_NONE);
    }
    TEST ("Linear with each smooth activation") {
        linear(true, true, ACT_GELU);
        linear(true, true, ACT_GELU_TANH);
        linear(false, true, ACT_SILU);
        linear(false, true, ACT_TANH);
    }
    TEST ("LayerNorm, alone and with a residual; its dx adds") {
        norms(LAYERNORM);
        norms(LAYERNORM_NO_BIAS);
    }
    TEST ("RMSNorm, alone and with a residual; its dx adds")
        norms(RMSNORM);
    TEST ("Linear with an adapter, both orientations, with activations, with dropout") {
        adapted_linear(true, ACT_NONE, 0);
        adapted_linear(false, ACT_GELU_TANH, 0);
        adapted_linear(true, ACT_SILU, 0.3);
    }
    TEST ("Several linear layers with adapters, with dropout, some frozen") {
        adapted_linears(0, false);
        adapted_linears(0.3, true);
    }
    TEST ("An adapter is a change of the weights")
        merged();
    TEST ("Several linear layers, as one product and one by one")
        several_linears();
    TEST ("Rotary attention, both layouts, with shared keys and values, and SwiGLU")
        llama_branches(0);
    TEST ("Rotary attention and SwiGLU with dropout")
        llama_branches(0.25f);
    TEST ("Embedding with repeated ids") {
        embedding(T + 2, 0);
        embedding(0, 0);
    }
    TEST ("Embedding with dropout")
        embedding(T, 0.3f);
    TEST ("Attention and MLP") {
        branches(true, 0);
        branches(false, 0);
    }
    TEST ("Attention and MLP with dropout")
        branches(true, 0.25f);
    TEST ("LMHead")
        lm_head(1);
    TEST ("Loss of classes and of values")
        losses();
    TEST ("LMHead in several chunks of rows and panels of columns against plain loops") {
        large_head(1500, 600);
        large_head(17001, 20);
        large_head(512, 8);
        large_head(577, 2);
    }
    return check_done();
}
