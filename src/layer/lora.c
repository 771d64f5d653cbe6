/* LoRA (Hu et al. 2021, arXiv:2106.09685): beside a linear layer that is frozen, a product of two
 * narrow matrices that is trained: y += scale (dropout(x) A') B'.  Names, first values and scale
 * are peft's: A uniform as torch's Linear has it, B zero, scale = alpha / rank. */
#include "layer/lora.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

struct adapter_conf {
    int64_t rank, n_in, n_out;
    int64_t first, width; /* its columns in a row of y */
    float scale, dropout;
};

struct adapter_frame {
    void *h; /* (rows, rank): scale dropout(x) A' */
};

enum { A, B };

static struct linear down(const struct adapter_conf *c, const struct pass *p)
{
    return (struct linear){.M = pass_rows(p), .N = c->rank, .K = c->n_in};
}

static struct linear up(const struct adapter_conf *c, const struct pass *p)
{
    return (struct linear){.M = pass_rows(p), .N = c->n_out, .K = c->rank};
}

/* to = scale from, both (rows, rank). */
static void scaled(const struct adapter_conf *c, struct pass *p, void *to, const void *from)
{
    pass_zero(p, to, pass_rows(p) * c->rank);
    p->s->k->add_scaled(p->s, to, c->rank, from, c->scale, pass_rows(p), c->rank);
}

/* x as A sees it: in scratch where something is dropped. */
static const void *input(const struct module *m, struct pass *p, const void *x)
{
    const struct adapter_conf *c = m->conf;
    if (!module_drops(p, c->dropout))
        return x;
    void *dropped = scratch_push(p, pass_rows(p) * c->n_in);
    module_dropout(m, p, c->dropout, dropped, x, c->n_in);
    return dropped;
}

static void adapter_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct adapter_conf *c = m->conf;
    const struct kernels *k = p->s->k;
    struct linear a = down(c, p), b = up(c, p);
    struct adapter_frame f = {.h = tape_push(p, a.M * c->rank)};
    size_t mark = stack_mark(&p->s->scratch);
    void *h = scratch_push(p, a.M * c->rank), *out = scratch_push(p, a.M * c->n_out);
    const void *in = input(m, p, x);
    if (a.M > 0) {
        k->linear_forward(p->s, &a, h, NULL, in, module_weight(m, p, A), NULL);
        scaled(c, p, f.h, h);
        k->linear_forward(p->s, &b, out, NULL, f.h, module_weight(m, p, B), NULL);
        k->add_scaled(p->s, pass_at(p, y, c->first), c->width, out, 1.0f, a.M, c->n_out);
    }
    stack_release(&p->s->scratch, mark);
    *(struct adapter_frame *)frame_push(p, sizeof f) = f;
}

static void adapter_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                             void *dx)
{
    const struct adapter_conf *c = m->conf;
    const struct kernels *k = p->s->k;
    struct linear a = down(c, p), b = up(c, p);
    struct adapter_frame f = *(struct adapter_frame *)frame_pop(p, sizeof f);
    size_t mark = stack_mark(&p->s->scratch);
    void *dh = scratch_push(p, a.M * c->rank), *da = scratch_push(p, a.M * c->rank);
    void *part = dx ? scratch_push(p, a.M * c->n_in) : NULL;
    const void *in = input(m, p, x);
    b.ldy = c->width;
    if (a.M > 0) {
        k->linear_backward(p->s, &b, dh, module_grad(m, p, B), NULL, pass_at(p, dy, c->first), f.h,
                           module_weight(m, p, B), NULL);
        scaled(c, p, da, dh);
        k->linear_backward(p->s, &a, part, module_grad(m, p, A), NULL, da, in,
                           module_weight(m, p, A), NULL);
    }
    if (dx && module_drops(p, c->dropout))
        module_dropout(m, p, c->dropout, part, part, c->n_in);
    if (dx && a.M > 0)
        k->add(p->s, dx, dx, part, a.M * c->n_in);
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops adapter_ops = {
    .cls = "LoRA", .forward = adapter_forward, .backward = adapter_backward};

bool lora_matches(const char *target, const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    return fnmatch(target, last, 0) == 0 || fnmatch(target, name, 0) == 0;
}

bool lora_wants(const struct builder *b, const char *name)
{
    for (int i = 0; b->lora && i < b->lora->n_targets; i++)
        if (lora_matches(b->lora->target[i], name))
            return true;
    return false;
}

static void add_matrix(struct builder *b, const char *name, int64_t n_out, int64_t n_in,
                       struct init_rule init)
{
    struct tensor_row r = {.name = name,
                           .shape = shape_make(2, n_out, n_in),
                           .flags = TENSOR_DECAY | TENSOR_ADAPTER,
                           .init = init,
                           .layout = "out_in"};
    tensor_add(b->table, &r);
}

struct module *lora_new(struct builder *b, const char *name, int64_t n_in, int64_t n_out,
                        int64_t first, int64_t width)
{
    const struct lora *l = b->lora;
    struct adapter_conf c = {.rank = l->rank,
                             .n_in = n_in,
                             .n_out = n_out,
                             .first = first,
                             .width = width,
                             .scale = (float)(l->alpha / (double)l->rank),
                             .dropout = (float)l->dropout};
    struct module *m = module_new(b, module_path(b, name, "lora"), &adapter_ops, &c, sizeof c, 0);
    float bound = (float)(1.0 / sqrt((double)n_in));
    add_matrix(b, module_path(b, name, "lora_A.weight"), l->rank, n_in,
               (struct init_rule){.kind = INIT_UNIFORM, .a = -bound, .b = bound});
    add_matrix(b, module_path(b, name, "lora_B.weight"), n_out, l->rank,
               (struct init_rule){.kind = INIT_CONST});
    m->n_rows = 2;
    m->n_in = n_in;
    return m;
}
