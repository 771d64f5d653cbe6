/* A multi-layer perceptron over rows of numbers: Linear, activation, Linear, …, and a loss that
 * follows from the data.  Tensors are named as in torch.nn.Sequential(Linear, activation, …):
 * "0.weight", "2.weight", …; dropout takes no number, so that switching it renames nothing. */
#include "model/model.h"

#include <math.h>
#include <string.h>

struct mlp_conf {
    struct opt_i64s hidden, layers;
    int activation;
    bool bias;
    double dropout;
};

static const char *const activation_words[] = {"relu", "gelu", "gelu_tanh", "silu", "tanh", NULL};
static const enum act_kind activations[] = {ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_TANH};

static const struct opt mlp_opts[] = {
    I64S(mlp_conf, hidden, NULL, 1, 16777216,
         "widths of the hidden layers; empty: a single linear layer"),
    I64S(mlp_conf, layers, NULL, 1, 16777216,
         "all widths, from the data's inputs to its outputs, instead of hidden"),
    ENUM(mlp_conf, activation, "relu", activation_words, "behind each hidden layer"),
    BOOL(mlp_conf, bias, "true", "biases in the linear layers"),
    F64(mlp_conf, dropout, "0", 0, 0.99, "share dropped behind each hidden layer"),
    {.type = OPT_END},
};

/* What the root needs to run. */
struct mlp_root {
    float dropout;
};

struct mlp_frame {
    void *out; /* the outputs, by now their gradient */
};

/* The batch's features, which are fp32, in the compute dtype. */
static const void *features(struct pass *p, int64_t n_in)
{
    if (p->compute == DTYPE_F32)
        return p->batch->features;
    int64_t n_elem = p->batch->B * n_in;
    void *x = tape_push(p, n_elem);
    if (n_elem > 0)
        p->s->k->cast(p->s, x, p->batch->features, n_elem);
    return x;
}

/* Children: the linear layers, then the loss. */
static void mlp_forward(const struct module *m, struct pass *p, const void *x, void *y)
{
    const struct mlp_root *c = m->conf;
    int n = m->n_children - 1;
    int64_t B = pass_rows(p);
    REQUIRE(!x && !y);
    void *out = NULL;
    x = features(p, m->children[0]->n_in);
    for (int i = 0; i < n; i++) {
        const struct module *layer = m->children[i];
        bool last = i == n - 1;
        out = last && p->logits ? p->logits : tape_push(p, B * layer->n_out);
        module_forward(layer, p, x, out);
        if (!last && module_drops(p, c->dropout))
            module_dropout(layer, p, c->dropout, out, out, layer->n_out);
        x = out;
    }
    if (!p->logits)
        module_forward(m->children[n], p, out, p->training ? out : NULL);
    struct mlp_frame *f = frame_push(p, sizeof *f);
    f->out = out;
}

static void mlp_backward(const struct module *m, struct pass *p, const void *x, void *dy, void *dx)
{
    (void)x;
    const struct mlp_root *c = m->conf;
    int n = m->n_children - 1;
    int64_t widest = 0;
    REQUIRE(!dy && !dx);
    void *d = ((struct mlp_frame *)frame_pop(p, sizeof(struct mlp_frame)))->out;
    module_backward(m->children[n], p, d, d);
    for (int i = 1; i < n; i++)
        widest = m->children[i]->n_in > widest ? m->children[i]->n_in : widest;

    size_t mark = stack_mark(&p->s->scratch);
    void *buffer[2];
    for (int i = 0; i < 2; i++)
        buffer[i] = scratch_push(p, pass_rows(p) * widest);
    for (int i = n - 1; i >= 0; i--) {
        void *below = i > 0 ? buffer[i % 2] : NULL;
        module_backward(m->children[i], p, d, below);
        if (i > 0 && !m->children[i - 1]->still && module_drops(p, c->dropout))
            module_dropout(m->children[i - 1], p, c->dropout, below, below, m->children[i]->n_in);
        d = below;
    }
    stack_release(&p->s->scratch, mark);
}

static const struct module_ops mlp_ops = {
    .cls = "MLP", .forward = mlp_forward, .backward = mlp_backward};

/* hidden and layers become the same list, told in two ways. */
static int resolve(struct mlp_conf *c, int64_t n_in, int64_t n_out, const char **key)
{
    const struct opt_i64s *l = &c->layers, *h = &c->hidden;
    if (l->n > 0) {
        *key = "layers";
        if (l->n < 2 || l->v[0] != n_in || l->v[l->n - 1] != n_out)
            FAIL(ERR_USAGE, "the widths go from the data's %lld inputs to its %lld outputs",
                 (long long)n_in, (long long)n_out);
        struct opt_i64s hidden = {.n = l->n - 2};
        size_t n_bytes = (size_t)hidden.n * sizeof *hidden.v;
        memcpy(hidden.v, l->v + 1, n_bytes);
        if (h->n > 0 && (h->n != hidden.n || memcmp(h->v, hidden.v, n_bytes) != 0))
            FAIL(ERR_USAGE, "layers and hidden say different things; one of them is enough");
        c->hidden = hidden;
        return ERR_OK;
    }
    if (c->hidden.n > OPT_LIST_MAX - 2) {
        *key = "hidden";
        FAIL(ERR_USAGE, "%d hidden layers; at most %d", c->hidden.n, OPT_LIST_MAX - 2);
    }
    c->layers.n = c->hidden.n + 2;
    c->layers.v[0] = n_in;
    memcpy(c->layers.v + 1, c->hidden.v, (size_t)c->hidden.n * sizeof *c->hidden.v);
    c->layers.v[c->layers.n - 1] = n_out;
    return ERR_OK;
}

static int mlp_build(struct model *m, void *conf, const char **key)
{
    struct mlp_conf *c = conf;
    if (m->shape.kind == SAMPLE_TOKENS) {
        *key = "type";
        FAIL(ERR_USAGE, "mlp reads rows of numbers, and this data is text; for it take gpt2");
    }
    int64_t n_out = m->shape.kind == SAMPLE_CLASS ? m->shape.vocab : m->shape.n_out;
    TRY(resolve(c, m->shape.n_in, n_out, key));
    m->shape.T = 0;

    struct builder b = {.arena = m->arena, .table = &m->table, .lora = m->lora};
    struct mlp_root root = {.dropout = (float)c->dropout};
    int n = c->layers.n - 1;
    m->root = module_new(&b, "", &mlp_ops, &root, sizeof root, n + 1);
    for (int i = 0; i < n; i++) {
        /* torch.nn.Linear's first values */
        float bound = (float)(1.0 / sqrt((double)c->layers.v[i]));
        struct init_rule uniform = {.kind = INIT_UNIFORM, .a = -bound, .b = bound};
        struct linear_rules init = {.weight = uniform, .bias = uniform};
        m->root->children[i] =
            linear_new(&b, arena_printf(m->arena, "%d", 2 * i), c->layers.v[i], c->layers.v[i + 1],
                       c->bias, false, i < n - 1 ? activations[c->activation] : ACT_NONE, &init);
    }
    m->root->children[n] = loss_new(&b, "loss", m->shape.kind, n_out);
    return ERR_OK;
}

static const char *const mlp_aliases[] = {"Sequential", "MLP", NULL};

/* All of them. */
static const char *const mlp_lora[] = {"*", NULL};

const struct model_family mlp_family = {
    .name = "mlp",
    .aliases = mlp_aliases,
    .block_cls = "Linear",
    .opts = mlp_opts,
    .conf_bytes = sizeof(struct mlp_conf),
    .build = mlp_build,
    .lora_targets = mlp_lora,
};
