/* How modules run: hooks and their order, empty batches, and the search for the module that made
 * the first NaN.
 * RUN: -n 1 */
#include "check.h"
#include "unit/model_run.h"

static const struct sample_shape text = {.kind = SAMPLE_TOKENS, .vocab = 11};
static const int32_t ids[6] = {1, 2, 3, 4, 5, 6}, targets[6] = {2, 3, 4, 5, 6, 7};
static const int64_t samples[2] = {0, 1};
static const struct batch batch = {
    .B = 2, .T = 3, .ids = ids, .targets = targets, .sample = samples, .n_valid = 6};

/* Each hook writes a letter and its module's class. */
struct trail {
    char text[4096];
};

struct place {
    struct trail *trail;
    const struct module *module;
};

static void note(const struct place *at, char when)
{
    char *to = at->trail->text;
    size_t n = strlen(to);
    snprintf(to + n, sizeof at->trail->text - n, "%c%s ", when, at->module->ops->cls);
}
static void before_forward(void *self, struct pass *p)
{
    CHECK(p->batch != NULL);
    note(self, '(');
}
static void after_forward(void *self, struct pass *p)
{
    CHECK(p->batch != NULL);
    note(self, ')');
}
static void before_backward(void *self, struct pass *p)
{
    CHECK(p->batch != NULL);
    note(self, '[');
}
static void after_backward(void *self, struct pass *p)
{
    CHECK(p->batch != NULL);
    note(self, ']');
}

struct hooking {
    struct arena *arena;
    struct trail *trail;
};

static void add_hooks(struct module *m, void *arg)
{
    struct hooking *to = arg;
    struct hooks *h = arena_alloc(to->arena, sizeof *h);
    struct place *at = arena_alloc(to->arena, sizeof *at);
    *at = (struct place){.trail = to->trail, .module = m};
    *h = (struct hooks){before_forward, after_forward, before_backward, after_backward, at};
    m->hooks = h;
}

static void remove_hooks(struct module *m, void *arg)
{
    (void)arg;
    m->hooks = NULL;
}

static void hooks(struct model *m, struct run *r, struct arena *a)
{
    static const char *const forward =
        "(GPT2 (Embedding )Embedding "
        "(Block (LayerNorm )LayerNorm (Attention (Linear )Linear (Linear )Linear )Attention "
        "(LayerNorm )LayerNorm (MLP (Linear )Linear (Linear )Linear )MLP )Block "
        "(LayerNorm )LayerNorm (LMHead )LMHead )GPT2 ";
    static const char *const backward =
        "[GPT2 [LMHead ]LMHead [LayerNorm ]LayerNorm "
        "[Block [MLP [Linear ]Linear [Linear ]Linear ]MLP [LayerNorm ]LayerNorm "
        "[Attention [Linear ]Linear [Linear ]Linear ]Attention [LayerNorm ]LayerNorm ]Block "
        "[Embedding ]Embedding ]GPT2 ";
    struct trail trail = {.text = ""};
    struct hooking to = {.arena = a, .trail = &trail};
    module_walk(m->root, add_hooks, &to);
    run_pass(r, false, &batch, NULL, NULL, NULL, NULL); /* dry and real */
    CHECK_STR(trail.text, arena_printf(a, "%s%s", forward, forward));
    trail.text[0] = 0;
    run_pass(r, true, &batch, NULL, NULL, NULL, NULL);
    CHECK_STR(trail.text, arena_printf(a, "%s%s%s%s", forward, backward, forward, backward));

    struct batch empty = batch;
    empty.B = 0;
    trail.text[0] = 0;
    run_pass(r, true, &empty, NULL, NULL, NULL, NULL);
    CHECK_STR(trail.text, arena_printf(a, "%s%s%s%s", forward, backward, forward, backward));
    module_walk(m->root, remove_hooks, NULL);
}

static void empty_batch(struct run *r)
{
    struct batch empty = {.T = 3};
    static float logits[1];
    run_zero_grads(r);
    run_pass(r, true, &empty, NULL, NULL, NULL, NULL);
    run_pass(r, false, &empty, NULL, NULL, NULL, NULL);
    r->p.logits = logits;
    run_pass(r, false, &empty, NULL, NULL, NULL, NULL);
    r->p.logits = NULL;
    CHECK(r->loss == 0 && r->n_correct == 0 && logits[0] == 0);
    for (int i = 0; i < r->table->n_rows; i++)
        for (int64_t j = 0; j < run_elems(r, i); j++)
            CHECK(r->grad[i][j] == 0);
    CHECK(r->dry_scratch == 0 || r->s.scratch.peak == r->dry_scratch);
}

static void frozen(struct run *r)
{
    float *head = r->grad[0], *bias = NULL;
    int row = tensor_find(r->table, "h.0.mlp.c_fc.bias");
    static float want[64];
    run_zero_grads(r);
    run_pass(r, true, &batch, NULL, NULL, NULL, NULL);
    memcpy(want, run_grad(r, "h.0.ln_1.bias"), 8 * sizeof *want);
    run_zero_grads(r);
    bias = r->grad[row];
    r->grad[0] = r->grad[row] = NULL;
    run_pass(r, true, &batch, NULL, NULL, NULL, NULL);
    CHECK(memcmp(want, run_grad(r, "h.0.ln_1.bias"), 8 * sizeof *want) == 0);
    CHECK(want[0] != 0);
    r->grad[0] = head;
    r->grad[row] = bias;
    CHECK(head[0] == 0 && bias[0] == 0);
}

static void poison(struct run *r, const char *tensor, bool training, const char *module)
{
    float *w = run_weight(r, tensor), kept = w[0];
    w[0] = NAN;
    r->p.check = true;
    r->p.bad = NULL;
    run_pass(r, training, &batch, NULL, NULL, NULL, NULL);
    CHECK_STR(r->p.bad, module);
    w[0] = kept;
    r->p.bad = NULL;
    r->loss = 0;
    run_pass(r, training, &batch, NULL, NULL, NULL, NULL);
    CHECK(r->p.bad == NULL);
    r->p.check = false;
}

struct keys {
    const struct pass *p;
    struct rng_key key[64];
    int n;
};

static void collect_key(struct module *m, void *arg)
{
    struct keys *all = arg;
    all->key[all->n++] = module_key(m, all->p);
}

/* Layers that shared a key would drop the same places. */
static void dropout_keys(struct model *m, struct run *r)
{
    struct keys keys = {.p = &r->p}, later = {.p = &r->p};
    module_walk(m->root, collect_key, &keys);
    CHECK(keys.n == 13);
    for (int i = 0; i < keys.n; i++)
        for (int j = 0; j < i; j++)
            CHECK(memcmp(&keys.key[i], &keys.key[j], sizeof keys.key[i]) != 0);
    struct rng_key kept = r->p.key;
    r->p.key = rng_key_make(RUN_SEED, 99);
    module_walk(m->root, collect_key, &later);
    for (int i = 0; i < keys.n; i++)
        CHECK(memcmp(&keys.key[i], &later.key[i], sizeof keys.key[i]) != 0);
    r->p.key = kept;
}

int main(void)
{
    struct arena *a = arena_create();
    struct model *m;
    const char *key;
    struct run r;
    if (RUN_BUILD("gpt2", &text, a, &key, &m, "n_layer=1", "n_head=2", "n_embd=8", "block_size=4",
                  "tie_word_embeddings=false") != ERR_OK)
        FATAL("%s", err_text());
    run_init(&r, &m->table, m->root);
    TEST ("hooks fire around every module, in dry runs and on empty batches too")
        hooks(m, &r, a);
    TEST ("an empty batch runs and adds nothing")
        empty_batch(&r);
    TEST ("every module has its own dropout key, another one each step")
        dropout_keys(m, &r);
    TEST ("a frozen tensor changes no other gradient")
        frozen(&r);
    TEST ("check finds the innermost module that made a NaN") {
        for (int training = 0; training < 2; training++) {
            poison(&r, "h.0.mlp.c_fc.weight", training, "h.0.mlp.c_fc");
            poison(&r, "h.0.attn.c_proj.bias", training, "h.0.attn.c_proj");
            poison(&r, "ln_f.weight", training, "ln_f");
            poison(&r, "lm_head.weight", training, "lm_head");
        }
    }
    run_clear(&r);
    arena_destroy(&a);
    return check_done();
}
