/* Attention: causal self-attention with one product for q, k and v, and c_proj behind it (Radford
 * et al. 2019).  Scores are never whole: forward keeps the log-sum-exp of each row. */
#include "layer/layers.h"

#include <math.h>

struct attention_conf {
    int64_t C, H;
    float attn_dropout, dropout;
};

enum { C_ATTN, C_PROJ, N_CHILDREN };

struct attention_frame {
    void *qkv; /* (rows, 3C) */
    void *att; /* (rows, C) */
    float *lse;
};

static struct attention sizes(const struct module *m, const struct pass *p)
{
    const struct attention_conf *c = m->conf;
    int64_t D = c->C / c->H;
    return (struct attention){
        .B = p->batch->B,
        .T = p->batch->T,
        .H = c->H,
        .n_kv_head = c->H,
        .D = D,
        .q_stride = 3 * c->C,
        .kv_stride = 3 * c->C,
        .scale = 1.0f / sqrtf((float)D),
        .drop = {.p = p->training ? c->attn_dropout : 0.0f,
                 .key = module_key(m, p),
                 .sample = p->batch->sample},
    };
}

static void *push_scratch(struct pass *p, const struct attention *a)
{
    return stack_push(&p->s->scratch, p->s->k->attention_scratch(a, p->s->dev->n_threads));
}

static void attention_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct attention_conf *c = m->conf;
    struct attention a = sizes(m, p);
    int64_t rows = pass_rows(p);
    struct attention_frame f = {.qkv = tape_push(p, 3 * rows * c->C)};
    module_forward(m->children[C_ATTN], p, x, f.qkv);
    f.att = tape_push(p, rows * c->C);
    f.lse = tape_push_f32(p, rows * c->H);

    size_t mark = stack_mark(&p->s->scratch);
    void *scratch = push_scratch(p, &a);
    if (rows > 0)
        p->s->k->attention_forward(p->s, &a, f.att, f.lse, f.qkv, pass_at(p, f.qkv, c->C),
                                   pass_at(p, f.qkv, 2 * c->C), scratch);
    stack_release(&p->s->scratch, mark);

    module_forward(m->children[C_PROJ], p, f.att, y);
    if (module_drops(p, c->dropout))
        module_dropout(m->children[C_PROJ], p, c->dropout, y, y, c->C);
    *(struct attention_frame *)frame_push(p, sizeof f) = f;
}

static void attention_backward(const struct module *m, struct pass *p, void *dy, void *dx)
{
    const struct attention_conf *c = m->conf;
    struct attention a = sizes(m, p);
    int64_t rows = pass_rows(p);
    struct attention_frame f = *(struct attention_frame *)frame_pop(p, sizeof f);
    size_t mark = stack_mark(&p->s->scratch);

    void *dqkv = scratch_push(p, 3 * rows * c->C);
    void *datt = scratch_push(p, rows * c->C);
    if (module_drops(p, c->dropout)) {
        void *dropped = scratch_push(p, rows * c->C);
        module_dropout(m->children[C_PROJ], p, c->dropout, dropped, dy, c->C);
        dy = dropped;
    }
    module_backward(m->children[C_PROJ], p, dy, datt);

    void *scratch = push_scratch(p, &a);
    if (rows > 0)
        p->s->k->attention_backward(p->s, &a, dqkv, pass_at(p, dqkv, c->C),
                                    pass_at(p, dqkv, 2 * c->C), datt, f.att, f.lse, f.qkv,
                                    pass_at(p, f.qkv, c->C), pass_at(p, f.qkv, 2 * c->C), scratch);
    module_backward(m->children[C_ATTN], p, dqkv, dx);
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops attention_ops = {
    .cls = "Attention", .forward = attention_forward, .backward = attention_backward};

struct module *attention_new(struct builder *b, const char *name, const struct branch *br,
                             int64_t H, float attn_dropout)
{
    int64_t C = br->C;
    REQUIRE(H > 0 && C % H == 0);
    struct attention_conf c = {
        .C = C, .H = H, .attn_dropout = attn_dropout, .dropout = br->dropout};
    struct module *m = module_new(b, name, &attention_ops, &c, sizeof c, N_CHILDREN);
    struct linear_rules in = {.weight = {.kind = INIT_NORMAL, .b = br->std}};
    struct linear_rules out = {.weight = {.kind = INIT_NORMAL, .b = br->proj_std}};
    m->children[C_ATTN] =
        linear_new(b, module_path(b, name, "c_attn"), C, 3 * C, br->bias, true, ACT_NONE, &in);
    m->children[C_PROJ] =
        linear_new(b, module_path(b, name, "c_proj"), C, C, br->bias, true, ACT_NONE, &out);
    m->n_in = m->n_out = C;
    return m;
}
