/* LMHead: the output matrix with cross-entropy, chunk by chunk.  A chunk of logits is turned into
 * its gradient and used up at once, so the largest array of a language model is never made. */
#include "layer/layers.h"

struct lm_head_conf {
    int64_t C, V;
    int row; /* of the matrix, its own or another module's */
};

/* Few rows would read and add to the whole matrix too often, many would take too much memory. */
enum { CHUNK_ROWS_MIN = 512, CHUNK_ELEMS = 256 * 1024 };

static int64_t chunk_rows(int64_t V, int64_t rows)
{
    int64_t n = CHUNK_ELEMS / V;
    if (n < CHUNK_ROWS_MIN)
        n = CHUNK_ROWS_MIN;
    return n < rows ? n : rows;
}

/* Logits lie in panels of columns, one behind the other, so that every product has dense sides with
 * rows of whole cache lines: a vocabulary is seldom a round number.  A panel is a multiple of
 * PANEL_ALIGN wide, and what the last one is left with is narrow. */
enum { PANEL_ALIGN = 64, PANEL_MAX = 8192 };

static int64_t panel_width(int64_t V)
{
    int64_t n = (V + PANEL_MAX - 1) / PANEL_MAX, width = V / PANEL_ALIGN / n * PANEL_ALIGN;
    return V < 8 * PANEL_ALIGN ? V : width;
}

static const void *matrix(const struct lm_head_conf *c, const struct pass *p)
{
    return p->dry ? NULL : p->weight[c->row];
}

/* A chunk of rows. */
struct chunk {
    int64_t n, panel;
    const void *x;
    void *logits;
    const int32_t *targets;
    float *loss;
};

static struct linear panel_at(const struct lm_head_conf *c, const struct chunk *k, int64_t v)
{
    return (struct linear){.M = k->n, .N = c->V - v < k->panel ? c->V - v : k->panel, .K = c->C};
}

static void chunk_loss(const struct lm_head_conf *c, struct pass *p, const struct chunk *k)
{
    for (int64_t v = 0; v < c->V; v += k->panel) {
        struct linear l = panel_at(c, k, v);
        p->s->k->linear_forward(p->s, &l, pass_at(p, k->logits, v * k->n), NULL, k->x,
                                pass_at_const(p, matrix(c, p), v * c->C), NULL);
    }
    p->s->k->cross_entropy(p->s, k->loss, p->training ? k->logits : NULL, k->logits, k->targets,
                           k->n, c->V, k->panel, p->loss_scale, p->output);
    p->s->k->sum_f64(p->s, p->loss_sum, k->loss, k->n);
}

/* dx and dw NULL: not wanted.  Where dx is a sum over panels it is rounded once. */
static void chunk_gradients(const struct lm_head_conf *c, struct pass *p, const struct chunk *k,
                            void *dx, float *dw, bool unset_dw)
{
    size_t mark = stack_mark(&p->s->scratch);
    float *sum = dx && k->panel < c->V ? scratch_push_f32(p, k->n * c->C) : NULL;
    for (int64_t v = 0; v < c->V; v += k->panel) {
        struct linear l = panel_at(c, k, v);
        l.unset_dw = unset_dw;
        l.wide_dx = sum != NULL;
        l.add_dx = sum && v > 0;
        p->s->k->linear_backward(p->s, &l, sum ? sum : dx, dw ? dw + v * c->C : NULL, NULL,
                                 pass_at(p, k->logits, v * k->n), k->x,
                                 pass_at_const(p, matrix(c, p), v * c->C), NULL);
    }
    if (sum)
        p->s->k->cast(p->s, dx, sum, k->n * c->C);
    stack_release(&p->s->scratch, mark);
}

/* dx NULL: not wanted. */
static void losses(const struct lm_head_conf *c, struct pass *p, const void *x, void *dx)
{
    int64_t rows = pass_rows(p), n_max = chunk_rows(c->V, rows);
    bool unset = false;
    float *dw = p->training && rows > 0 ? pass_grad_first(p, c->row, &unset) : NULL;
    size_t mark = stack_mark(&p->s->scratch);
    void *logits = scratch_push(p, n_max * c->V);
    float *loss = scratch_push_f32(p, n_max);
    for (int64_t i = 0; i < rows; i += n_max) {
        struct chunk k = {.n = rows - i < n_max ? rows - i : n_max,
                          .panel = panel_width(c->V),
                          .x = pass_at_const(p, x, i * c->C),
                          .logits = logits,
                          .targets = p->dry ? NULL : p->batch->targets + i,
                          .loss = loss};
        chunk_loss(c, p, &k);
        if (p->training)
            chunk_gradients(c, p, &k, dx ? pass_at(p, dx, i * c->C) : NULL, dw, unset && i == 0);
    }
    stack_release(&p->s->scratch, mark);
}

/* Row by row where only the last positions are wanted: they lie T rows apart. */
static void logits_only(const struct lm_head_conf *c, struct pass *p, const void *x)
{
    int64_t B = p->batch->B, T = p->batch->T;
    struct linear l = {.M = p->last_only ? 1 : B * T, .N = c->V, .K = c->C};
    if (B == 0)
        return;
    for (int64_t b = 0; b < (p->last_only ? B : 1); b++) {
        int64_t row = p->last_only ? b * T + (p->n_context ? p->n_context : T) - 1 : 0;
        p->s->k->linear_forward(p->s, &l, pass_at(p, p->logits, b * c->V), NULL,
                                pass_at_const(p, x, row * c->C), matrix(c, p), NULL);
    }
}

static void lm_head_forward(const struct module *m, struct pass *p, const void *x, void *dx)
{
    const struct lm_head_conf *c = m->conf;
    REQUIRE(p->training ? dx && !p->logits : !dx);
    if (p->logits)
        logits_only(c, p, x);
    else
        losses(c, p, x, m->lowest ? NULL : dx);
}

static void lm_head_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                             void *dx)
{
    (void)x;
    (void)m;
    (void)p;
    REQUIRE(dy == dx);
}

static const struct module_ops lm_head_ops = {
    .cls = "LMHead", .loss_head = true, .forward = lm_head_forward, .backward = lm_head_backward};

struct module *lm_head_new(struct builder *b, const char *name, int tied_row, int64_t C, int64_t V,
                           float std)
{
    bool tied = tied_row >= 0;
    struct lm_head_conf c = {.C = C, .V = V, .row = tied ? tied_row : b->table->n_rows};
    struct module *m = module_new(b, name, &lm_head_ops, &c, sizeof c, 0);
    const char *weight = module_path(b, name, "weight");
    if (tied) {
        b->table->rows[tied_row].alias = weight;
    } else {
        struct tensor_row r = {.name = weight,
                               .shape = shape_make(2, V, C),
                               .flags = TENSOR_DECAY,
                               .init = {.kind = INIT_NORMAL, .a = 0.0f, .b = std},
                               .layout = "out_in"};
        tensor_add(b->table, &r);
        m->n_rows = 1;
    }
    m->n_in = m->n_out = C;
    return m;
}
