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

/* Elements from a row of logits to the next: whole cache lines, since a vocabulary is seldom a
 * round number and products of rows that begin anywhere are a third slower. */
static int64_t row_step(int64_t V)
{
    enum { LINE_ELEMS = 32 };
    return V < 8 * LINE_ELEMS ? V : (V + LINE_ELEMS - 1) / LINE_ELEMS * LINE_ELEMS;
}

static const void *matrix(const struct lm_head_conf *c, const struct pass *p)
{
    return p->dry ? NULL : p->weight[c->row];
}

/* dx NULL: not wanted. */
static void losses(const struct lm_head_conf *c, struct pass *p, const void *x, void *dx)
{
    const struct kernels *k = p->s->k;
    int64_t rows = pass_rows(p), n_max = chunk_rows(c->V, rows), step = row_step(c->V);
    const void *w = matrix(c, p);
    bool unset = false;
    float *dw = p->training && rows > 0 ? pass_grad_first(p, c->row, &unset) : NULL;
    size_t mark = stack_mark(&p->s->scratch);
    void *logits = scratch_push(p, n_max * step);
    float *loss = scratch_push_f32(p, n_max);
    for (int64_t i = 0; i < rows; i += n_max) {
        int64_t n = rows - i < n_max ? rows - i : n_max;
        struct linear l = {.M = n, .N = c->V, .K = c->C, .ldy = step, .unset_dw = unset && i == 0};
        const int32_t *targets = p->dry ? NULL : p->batch->targets + i;
        const void *xi = pass_at_const(p, x, i * c->C);
        k->linear_forward(p->s, &l, logits, NULL, xi, w, NULL);
        k->cross_entropy(p->s, loss, p->training ? logits : NULL, logits, targets, n, c->V, step,
                         p->loss_scale, p->output);
        k->sum_f64(p->s, p->loss_sum, loss, n);
        if (p->training)
            k->linear_backward(p->s, &l, dx ? pass_at(p, dx, i * c->C) : NULL, dw, NULL, logits, xi,
                               w, NULL);
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
