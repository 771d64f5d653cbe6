/* The mlp family against plain loops in double precision.
 * RUN: -n 1 */
#include "check.h"
#include "unit/model_check.h"

enum { B = 6, N_IN = 5, N_OUT = 3, WIDEST = 8, MAX_LAYERS = 4 };

static float features[B * N_IN], values[B * N_OUT];
static const int32_t classes[B] = {0, 2, 1, 1, 0, 2};
static const int64_t samples[B] = {5, 4, 3, 2, 1, 0};
static const struct batch batch = {.B = B,
                                   .features = features,
                                   .targets = classes,
                                   .values = values,
                                   .sample = samples,
                                   .n_valid = B};
static const struct sample_shape by_class = {.kind = SAMPLE_CLASS, .n_in = N_IN, .vocab = N_OUT};
static const struct sample_shape by_value = {
    .kind = SAMPLE_REGRESSION, .n_in = N_IN, .n_out = N_OUT};

static double act(const char *name, double x, double *slope)
{
    if (strcmp(name, "relu") == 0) {
        *slope = x > 0;
        return x > 0 ? x : 0;
    }
    if (strcmp(name, "tanh") == 0) {
        *slope = 1 - tanh(x) * tanh(x);
        return tanh(x);
    }
    if (strcmp(name, "silu") == 0) {
        double s = 1 / (1 + exp(-x));
        *slope = s + x * s * (1 - s);
        return x * s;
    }
    if (strcmp(name, "gelu") == 0) {
        double cdf = 0.5 * (1 + erf(x / sqrt(2)));
        *slope = cdf + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
        return x * cdf;
    }
    double k = sqrt(2 / acos(-1)), t = tanh(k * (x + 0.044715 * x * x * x));
    *slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
    return 0.5 * x * (1 + t);
}

/* What one sample adds; weights and gradients by layer, [out][in]. */
struct plain {
    int n_layers, width[MAX_LAYERS + 1];
    const char *act;
    bool classes;
    double w[MAX_LAYERS][WIDEST][WIDEST], b[MAX_LAYERS][WIDEST];
    double dw[MAX_LAYERS][WIDEST][WIDEST], db[MAX_LAYERS][WIDEST];
    double loss;
    int64_t n_correct;
    double out[N_OUT];
};

static void plain_loss(struct plain *q, int64_t i, double scale, double *d)
{
    double sum = 0, largest = -1e300;
    int best = 0;
    for (int v = 0; v < N_OUT; v++) {
        sum += exp(q->out[v]);
        if (q->out[v] > largest) {
            largest = q->out[v];
            best = v;
        }
    }
    for (int v = 0; v < N_OUT; v++) {
        double off = q->out[v] - (double)values[i * N_OUT + v];
        d[v] = scale * (q->classes ? exp(q->out[v]) / sum - (v == classes[i]) : 2 * off);
        q->loss += q->classes ? 0 : off * off;
    }
    if (q->classes) {
        q->loss += log(sum) - q->out[classes[i]];
        q->n_correct += best == classes[i];
    }
}

static void plain_sample(struct plain *q, int64_t i, double scale)
{
    double x[MAX_LAYERS + 1][WIDEST], slope[MAX_LAYERS + 1][WIDEST], d[WIDEST], below[WIDEST];
    for (int k = 0; k < N_IN; k++)
        x[0][k] = (double)features[i * N_IN + k];
    for (int l = 0; l < q->n_layers; l++)
        for (int n = 0; n < q->width[l + 1]; n++) {
            double z = q->b[l][n];
            for (int k = 0; k < q->width[l]; k++)
                z += q->w[l][n][k] * x[l][k];
            x[l + 1][n] = l < q->n_layers - 1 ? act(q->act, z, &slope[l + 1][n]) : z;
        }
    memcpy(q->out, x[q->n_layers], sizeof q->out);
    plain_loss(q, i, scale, d);
    for (int l = q->n_layers - 1; l >= 0; l--) {
        memset(below, 0, sizeof below);
        for (int n = 0; n < q->width[l + 1]; n++) {
            q->db[l][n] += d[n];
            for (int k = 0; k < q->width[l]; k++) {
                q->dw[l][n][k] += d[n] * x[l][k];
                below[k] += d[n] * q->w[l][n][k];
            }
        }
        for (int k = 0; l > 0 && k < q->width[l]; k++)
            d[k] = below[k] * slope[l][k];
    }
}

static void plain_from(struct plain *q, const struct run *r, const struct model *m)
{
    for (int l = 0; l < q->n_layers; l++) {
        const float *w = run_weight(r, arena_printf(m->arena, "%d.weight", 2 * l));
        const float *b = run_weight(r, arena_printf(m->arena, "%d.bias", 2 * l));
        for (int n = 0; n < q->width[l + 1]; n++) {
            q->b[l][n] = (double)b[n];
            for (int k = 0; k < q->width[l]; k++)
                q->w[l][n][k] = (double)w[n * q->width[l] + k];
        }
    }
}

static void check_grads(const struct plain *q, const struct run *r, const struct model *m)
{
    for (int l = 0; l < q->n_layers; l++) {
        float want_w[WIDEST * WIDEST], want_b[WIDEST];
        const char *weight = arena_printf(m->arena, "%d.weight", 2 * l);
        int n_in = q->width[l], n_out = q->width[l + 1];
        for (int n = 0; n < n_out; n++) {
            want_b[n] = (float)q->db[l][n];
            for (int k = 0; k < n_in; k++)
                want_w[n * n_in + k] = (float)q->dw[l][n][k];
        }
        CHECK(run_difference(run_grad(r, weight), want_w, n_in * n_out) <= 1e-5);
        CHECK(run_difference(run_grad(r, arena_printf(m->arena, "%d.bias", 2 * l)), want_b,
                             n_out) <= 1e-5);
    }
}

static void against_plain(const char *widths, const char *activation, bool classify)
{
    static struct plain q;
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    struct run r;
    if (RUN_BUILD("mlp", classify ? &by_class : &by_value, a, &key, &m, widths,
                  arena_printf(a, "activation=%s", activation)) != ERR_OK)
        FATAL("%s", err_text());
    run_init(&r, &m->table, m->root);
    q = (struct plain){.act = activation, .classes = classify, .width = {N_IN}};
    q.n_layers = m->root->n_children - 1;
    for (int l = 0; l < q.n_layers; l++)
        q.width[l + 1] = (int)m->root->children[l]->n_out;
    plain_from(&q, &r, m);
    static float out[B * N_OUT];
    r.p.logits = out;
    run_pass(&r, false, &batch, NULL, NULL, NULL, NULL);
    r.p.logits = NULL;
    for (int i = 0; i < B; i++) {
        plain_sample(&q, i, 1.0 / B);
        for (int v = 0; v < N_OUT; v++)
            CHECK_NEAR(out[i * N_OUT + v], q.out[v], 1e-5);
    }
    CHECK(r.loss == 0 && r.n_correct == 0);
    r.p.loss_scale = 1.0f / B;
    run_pass(&r, true, &batch, NULL, NULL, NULL, NULL);
    CHECK_NEAR(r.loss, q.loss, 1e-5 * q.loss);
    CHECK(r.n_correct == q.n_correct);
    CHECK(r.tape.top == 0 && r.frames.top == 0 && r.s.scratch.top == 0);
    CHECK(r.tape.peak == r.dry_tape && r.s.scratch.peak == r.dry_scratch);
    check_grads(&q, &r, m);
    r.loss = 0;
    r.n_correct = 0;
    run_pass(&r, false, &batch, NULL, NULL, NULL, NULL);
    CHECK_NEAR(r.loss, q.loss, 1e-5 * q.loss);
    CHECK(r.n_correct == q.n_correct && r.tape.top == 0);
    struct batch empty = {.B = 0};
    run_pass(&r, true, &empty, NULL, NULL, NULL, NULL);
    check_grads(&q, &r, m);
    run_clear(&r);
    arena_destroy(&a);
}

/* Loss with weight w[i] moved by d, masks as they are. */
static double moved_loss(struct run *r, float *w, double d)
{
    float kept = *w;
    *w = (float)((double)kept + d);
    r->loss = 0;
    run_pass(r, true, &batch, NULL, NULL, NULL, NULL);
    *w = kept;
    return r->loss;
}

/* Central differences at two steps, as in test_layer_gradient.c, and its tolerance. */
static void dropped_gradient(struct run *r, const float *got)
{
    float *w = run_weight(r, "0.weight"), want[WIDEST * N_IN];
    for (int i = 0; i < WIDEST * N_IN; i++) {
        double h = 0.03, near = moved_loss(r, w + i, h) - moved_loss(r, w + i, -h);
        double far = moved_loss(r, w + i, 2 * h) - moved_loss(r, w + i, -2 * h);
        want[i] = (float)((8 * near - far) / (12 * h));
    }
    CHECK(run_difference(got, want, WIDEST * N_IN) <= 2e-4);
}

static void dropout(void)
{
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    struct run r;
    if (RUN_BUILD("mlp", &by_class, a, &key, &m, "hidden=8, 8", "dropout=0.3", "activation=tanh") !=
        ERR_OK)
        FATAL("%s", err_text());
    run_init(&r, &m->table, m->root);
    float whole[WIDEST * N_IN];
    run_pass(&r, true, &batch, NULL, NULL, NULL, NULL);
    double loss = r.loss;
    memcpy(whole, run_grad(&r, "0.weight"), sizeof whole);
    dropped_gradient(&r, whole);
    run_zero_grads(&r);
    for (int i = 0; i < B; i++) {
        struct batch one = batch;
        one.B = 1;
        one.features += i * N_IN;
        one.targets += i;
        one.sample += i;
        run_pass(&r, true, &one, NULL, NULL, NULL, NULL);
    }
    CHECK_NEAR(r.loss, loss, 1e-6 * loss);
    CHECK(run_difference(run_grad(&r, "0.weight"), whole, WIDEST * N_IN) <= 1e-6);
    r.loss = 0;
    run_pass(&r, false, &batch, NULL, NULL, NULL, NULL);
    CHECK(fabs(r.loss - loss) > 1e-3);
    run_clear(&r);
    arena_destroy(&a);
}

static void bf16(bool class)
{
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    struct run r;
    if (RUN_BUILD("mlp", class ? &by_class : &by_value, a, &key, &m, "hidden=8, 7") != ERR_OK)
        FATAL("%s", err_text());
    run_init(&r, &m->table, m->root);
    r.p.n_correct = NULL;
    check_bf16(&r, &batch);
    run_clear(&r);
    arena_destroy(&a);
}

static void names_and_errors(void)
{
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    TEST ("names are torch.nn.Sequential's, first values torch.nn.Linear's") {
        CHECK(RUN_BUILD("mlp", &by_value, a, &key, &m, "bias=true") == ERR_OK);
        CHECK(m->table.n_rows == 2 && m->shape.T == 0);
        CHECK(model_block_size(m->family, m->conf) == 0);
        CHECK_STR(m->table.rows[0].name, "0.weight");
        CHECK_STR(m->table.rows[1].name, "0.bias");
        CHECK_STR(m->table.rows[0].layout, "out_in");
        CHECK(m->table.rows[0].shape.dim[0] == N_OUT && m->table.rows[0].shape.dim[1] == N_IN);
        CHECK(m->table.rows[0].init.kind == INIT_UNIFORM);
        CHECK_NEAR(m->table.rows[1].init.b, 1 / sqrt(N_IN), 1e-7);
        CHECK(RUN_BUILD("mlp", &by_class, a, &key, &m, "layers=5, 4, 3", "bias=false") == ERR_OK);
        CHECK(m->table.n_rows == 2);
        CHECK_STR(m->table.rows[1].name, "2.weight");
        CHECK(tensor_table_elems(&m->table) == 5 * 4 + 4 * 3);
    }
    TEST ("errors name the key") {
        CHECK(RUN_BUILD("mlp", &by_class, a, &key, &m, "layers=6, 4, 3") == ERR_USAGE);
        CHECK_STR(key, "layers");
        CHECK_HAS(err_text(), "5 inputs");
        CHECK(RUN_BUILD("mlp", &by_class, a, &key, &m, "layers=5, 4, 3", "hidden=7") == ERR_USAGE);
        CHECK(RUN_BUILD("mlp", &by_class, a, &key, &m, "layers=5, 4, 3", "hidden=4") == ERR_OK);
        struct sample_shape text = {.kind = SAMPLE_TOKENS, .vocab = 9};
        CHECK(RUN_BUILD("mlp", &text, a, &key, &m, "bias=true") == ERR_USAGE);
        CHECK_STR(key, "type");
    }
    arena_destroy(&a);
}

int main(void)
{
    static const char *const acts[] = {"relu", "gelu", "gelu_tanh", "silu", "tanh"};
    rng_fill_normal(rng_key_make(1, 1), 0, B * N_IN, 0, 1, features);
    rng_fill_normal(rng_key_make(2, 1), 0, B * N_OUT, 0, 1, values);
    TEST ("classes: outputs, loss, right answers and gradients, every activation") {
        for (int i = 0; i < 5; i++)
            against_plain("hidden=8, 7", acts[i], true);
    }
    TEST ("values: outputs, loss and gradients, every activation") {
        for (int i = 0; i < 5; i++)
            against_plain("hidden=6, 8, 4", acts[i], false);
    }
    TEST ("a single linear layer") {
        against_plain("hidden=", "relu", true);
        against_plain("layers=5, 3", "relu", false);
    }
    TEST ("dropout: masks do not depend on the cut of the batch, and backward has the same ones")
        dropout();
    TEST ("in bf16, features too: loss and gradients as near as its eight bits allow") {
        bf16(true);
        bf16(false);
    }
    names_and_errors();
    return check_done();
}
