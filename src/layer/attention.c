/* Attention: causal self-attention between two products, one for q, k and v, one behind it; GPT-2's
 * (Radford et al. 2019) and Llama's, which turns q and k by their positions.  Scores are never
 * whole: forward keeps the log-sum-exp of each row. */
#include "layer/layers.h"

#include <math.h>

struct attention_conf {
    int64_t C, H, n_kv_head, D;
    bool rope, interleaved;
    float attn_dropout, dropout;
};

enum { QKV, PROJ, N_CHILDREN };

struct attention_frame {
    void *qkv; /* (rows, (H + 2 n_kv_head) D) */
    void *att; /* (rows, H D) */
    float *lse;
};

static int64_t qkv_width(const struct attention_conf *c)
{
    return (c->H + 2 * c->n_kv_head) * c->D;
}

/* Where k and v begin in a row of qkv. */
static int64_t k_at(const struct attention_conf *c)
{
    return c->H * c->D;
}

static int64_t v_at(const struct attention_conf *c)
{
    return (c->H + c->n_kv_head) * c->D;
}

static struct attention sizes(const struct module *m, const struct pass *p)
{
    const struct attention_conf *c = m->conf;
    return (struct attention){
        .B = p->batch->B,
        .T = p->batch->T,
        .H = c->H,
        .n_kv_head = c->n_kv_head,
        .D = c->D,
        .q_stride = qkv_width(c),
        .kv_stride = qkv_width(c),
        .scale = 1.0f / sqrtf((float)c->D),
        .drop = {.p = p->training ? c->attn_dropout : 0.0f,
                 .key = module_key(m, p),
                 .sample = p->batch->sample},
    };
}

static void *push_scratch(struct pass *p, const struct attention *a)
{
    return stack_push(&p->s->scratch, p->s->k->attention_scratch(a, p->s->dev->n_threads));
}

/* Of q and k, whose heads lie one behind the other; inverse: of their gradients. */
static void turn(const struct module *m, struct pass *p, void *qk, bool inverse)
{
    const struct attention_conf *c = m->conf;
    if (!c->rope || pass_rows(p) == 0)
        return;
    REQUIRE(p->dry || p->rope);
    struct rope r = {.B = p->batch->B,
                     .T = p->batch->T,
                     .n_head = c->H + c->n_kv_head,
                     .D = c->D,
                     .stride = qkv_width(c),
                     .interleaved = c->interleaved,
                     .inverse = inverse};
    p->s->k->rope(p->s, qk, p->rope, &r);
}

static void attention_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct attention_conf *c = m->conf;
    struct attention a = sizes(m, p);
    int64_t rows = pass_rows(p);
    struct attention_frame f = {.qkv = tape_push(p, rows * qkv_width(c))};
    module_forward(m->children[QKV], p, x, f.qkv);
    turn(m, p, f.qkv, false);
    f.att = tape_push(p, rows * c->H * c->D);
    f.lse = tape_push_f32(p, rows * c->H);

    size_t mark = stack_mark(&p->s->scratch);
    void *scratch = push_scratch(p, &a);
    if (rows > 0)
        p->s->k->attention_forward(p->s, &a, f.att, f.lse, f.qkv, pass_at(p, f.qkv, k_at(c)),
                                   pass_at(p, f.qkv, v_at(c)), scratch);
    stack_release(&p->s->scratch, mark);

    module_forward(m->children[PROJ], p, f.att, y);
    if (module_drops(p, c->dropout))
        module_dropout(m->children[PROJ], p, c->dropout, y, y, c->C);
    *(struct attention_frame *)frame_push(p, sizeof f) = f;
}

static void attention_backward(const struct module *m, struct pass *p, const void *x, void *dy,
                               void *dx)
{
    const struct attention_conf *c = m->conf;
    struct attention a = sizes(m, p);
    int64_t rows = pass_rows(p);
    struct attention_frame f = *(struct attention_frame *)frame_pop(p, sizeof f);
    size_t mark = stack_mark(&p->s->scratch);

    void *dqkv = scratch_push(p, rows * qkv_width(c));
    void *datt = scratch_push(p, rows * c->H * c->D);
    if (module_drops(p, c->dropout)) {
        void *dropped = scratch_push(p, rows * c->C);
        module_dropout(m->children[PROJ], p, c->dropout, dropped, dy, c->C);
        dy = dropped;
    }
    module_backward(m->children[PROJ], p, dy, datt);

    void *scratch = push_scratch(p, &a);
    bool wanted = !m->children[QKV]->still;
    if (rows > 0 && wanted)
        p->s->k->attention_backward(
            p->s, &a, dqkv, pass_at(p, dqkv, k_at(c)), pass_at(p, dqkv, v_at(c)), datt, f.att,
            f.lse, f.qkv, pass_at(p, f.qkv, k_at(c)), pass_at(p, f.qkv, v_at(c)), scratch);
    if (wanted)
        turn(m, p, dqkv, true);
    module_backward_from(m->children[QKV], p, x, dqkv, dx);
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops attention_ops = {
    .cls = "Attention", .forward = attention_forward, .backward = attention_backward};

struct module *attention_new(struct builder *b, const char *name, const struct branch *br,
                             int64_t H, float attn_dropout)
{
    int64_t C = br->C;
    REQUIRE(H > 0 && C % H == 0);
    struct attention_conf c = {.C = C,
                               .H = H,
                               .n_kv_head = H,
                               .D = C / H,
                               .attn_dropout = attn_dropout,
                               .dropout = br->dropout};
    struct module *m = module_new(b, name, &attention_ops, &c, sizeof c, N_CHILDREN);
    struct linear_rules in = {.weight = {.kind = INIT_NORMAL, .b = br->std}};
    struct linear_rules out = {.weight = {.kind = INIT_NORMAL, .b = br->proj_std}};
    m->children[QKV] =
        linear_new(b, module_path(b, name, "c_attn"), C, 3 * C, br->bias, true, ACT_NONE, &in);
    m->children[PROJ] =
        linear_new(b, module_path(b, name, "c_proj"), C, C, br->bias, true, ACT_NONE, &out);
    m->n_in = m->n_out = C;
    return m;
}

struct module *rope_attention_new(struct builder *b, const char *name, const struct branch *br,
                                  const struct rope_attention *r)
{
    REQUIRE(!br->bias && r->H > 0 && r->n_kv_head > 0 && r->H % r->n_kv_head == 0);
    REQUIRE(r->D > 0 && r->D % 2 == 0);
    struct attention_conf c = {.C = br->C,
                               .H = r->H,
                               .n_kv_head = r->n_kv_head,
                               .D = r->D,
                               .rope = true,
                               .interleaved = r->interleaved,
                               .attn_dropout = r->attn_dropout,
                               .dropout = br->dropout};
    struct module *m = module_new(b, name, &attention_ops, &c, sizeof c, N_CHILDREN);
    int64_t q = r->H * r->D, kv = r->n_kv_head * r->D;
    struct linears in = {
        .n = 3, .name = {"q_proj", "k_proj", "v_proj"}, .n_out = {q, kv, kv}, .std = br->std};
    struct linear_rules out = {.weight = {.kind = INIT_NORMAL, .b = br->proj_std}};
    m->children[QKV] = linears_new(b, module_path(b, name, "qkv_proj"), name, br->C, &in);
    m->children[PROJ] =
        linear_new(b, module_path(b, name, "o_proj"), q, br->C, false, false, ACT_NONE, &out);
    m->n_in = m->n_out = br->C;
    return m;
}

void rope_push(struct pass *p, int64_t D, double theta)
{
    int64_t T = p->batch->T;
    float *table = tape_push_f32(p, T * D);
    if (T > 0)
        p->s->k->rope_table(p->s, table, T, D, theta);
    p->rope = table;
}
