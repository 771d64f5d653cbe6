/* The dialects, a table each.  In a pattern * stands for the number of a layer. */
#include "ckpt/names.h"

#include "base/text.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum how { AS_IS, TRANSPOSED, Q_ROWS, K_ROWS, DROPPED };

struct rule {
    const char *from, *to, *layout;
    enum how how;
};

struct dialect {
    const char *name, *family;
    const char *marker; /* a tensor that only this dialect has */
    int turned;         /* 1: the marker's rows are thrice its columns, -1: not; 0: no matter */
    const char *const *prefixes; /* cut off where they stand; NULL-terminated */
    const struct rule *rules;    /* ends with from == NULL */
};

#define GPT2_PLAIN                                                                                 \
    {"wte.weight", "wte.weight", "plain", AS_IS}, {"wpe.weight", "wpe.weight", "plain", AS_IS},    \
        {"h.*.ln_1.weight", "h.*.ln_1.weight", "plain", AS_IS},                                    \
        {"h.*.ln_1.bias", "h.*.ln_1.bias", "plain", AS_IS},                                        \
        {"h.*.ln_2.weight", "h.*.ln_2.weight", "plain", AS_IS},                                    \
        {"h.*.ln_2.bias", "h.*.ln_2.bias", "plain", AS_IS},                                        \
        {"h.*.attn.c_attn.bias", "h.*.attn.c_attn.bias", "plain", AS_IS},                          \
        {"h.*.attn.c_proj.bias", "h.*.attn.c_proj.bias", "plain", AS_IS},                          \
        {"h.*.mlp.c_fc.bias", "h.*.mlp.c_fc.bias", "plain", AS_IS},                                \
        {"h.*.mlp.c_proj.bias", "h.*.mlp.c_proj.bias", "plain", AS_IS},                            \
        {"ln_f.weight", "ln_f.weight", "plain", AS_IS},                                            \
        {"ln_f.bias", "ln_f.bias", "plain", AS_IS},                                                \
        {"lm_head.weight", "lm_head.weight", "out_in", AS_IS},                                     \
        {"h.*.attn.bias", NULL, NULL, DROPPED}, /* the causal mask, a buffer */                    \
    {                                                                                              \
        "h.*.attn.masked_bias", NULL, NULL, DROPPED                                                \
    }

static const struct rule gpt2_rules[] = {
    GPT2_PLAIN,
    {"h.*.attn.c_attn.weight", "h.*.attn.c_attn.weight", "in_out", AS_IS},
    {"h.*.attn.c_proj.weight", "h.*.attn.c_proj.weight", "in_out", AS_IS},
    {"h.*.mlp.c_fc.weight", "h.*.mlp.c_fc.weight", "in_out", AS_IS},
    {"h.*.mlp.c_proj.weight", "h.*.mlp.c_proj.weight", "in_out", AS_IS},
    {NULL, NULL, NULL, AS_IS},
};

static const struct rule nanogpt_rules[] = {
    GPT2_PLAIN,
    {"h.*.attn.c_attn.weight", "h.*.attn.c_attn.weight", "in_out", TRANSPOSED},
    {"h.*.attn.c_proj.weight", "h.*.attn.c_proj.weight", "in_out", TRANSPOSED},
    {"h.*.mlp.c_fc.weight", "h.*.mlp.c_fc.weight", "in_out", TRANSPOSED},
    {"h.*.mlp.c_proj.weight", "h.*.mlp.c_proj.weight", "in_out", TRANSPOSED},
    {NULL, NULL, NULL, AS_IS},
};

#define LAYER(name) "layers.*." name, "model.layers.*." name

static const struct rule llama_rules[] = {
    {"embed_tokens.weight", "model.embed_tokens.weight", "plain", AS_IS},
    {LAYER("input_layernorm.weight"), "plain", AS_IS},
    {LAYER("post_attention_layernorm.weight"), "plain", AS_IS},
    {LAYER("self_attn.q_proj.weight"), "out_in", AS_IS},
    {LAYER("self_attn.k_proj.weight"), "out_in", AS_IS},
    {LAYER("self_attn.v_proj.weight"), "out_in", AS_IS},
    {LAYER("self_attn.o_proj.weight"), "out_in", AS_IS},
    {LAYER("mlp.gate_proj.weight"), "out_in", AS_IS},
    {LAYER("mlp.up_proj.weight"), "out_in", AS_IS},
    {LAYER("mlp.down_proj.weight"), "out_in", AS_IS},
    {"norm.weight", "model.norm.weight", "plain", AS_IS},
    {"lm_head.weight", "lm_head.weight", "out_in", AS_IS},
    {"layers.*.self_attn.rotary_emb.inv_freq", NULL, NULL, DROPPED},
    {NULL, NULL, NULL, AS_IS},
};

static const struct rule meta_rules[] = {
    {"tok_embeddings.weight", "model.embed_tokens.weight", "plain", AS_IS},
    {"layers.*.attention_norm.weight", "model.layers.*.input_layernorm.weight", "plain", AS_IS},
    {"layers.*.ffn_norm.weight", "model.layers.*.post_attention_layernorm.weight", "plain", AS_IS},
    {"layers.*.attention.wq.weight", "model.layers.*.self_attn.q_proj.weight", "out_in", Q_ROWS},
    {"layers.*.attention.wk.weight", "model.layers.*.self_attn.k_proj.weight", "out_in", K_ROWS},
    {"layers.*.attention.wv.weight", "model.layers.*.self_attn.v_proj.weight", "out_in", AS_IS},
    {"layers.*.attention.wo.weight", "model.layers.*.self_attn.o_proj.weight", "out_in", AS_IS},
    {"layers.*.feed_forward.w1.weight", "model.layers.*.mlp.gate_proj.weight", "out_in", AS_IS},
    {"layers.*.feed_forward.w2.weight", "model.layers.*.mlp.down_proj.weight", "out_in", AS_IS},
    {"layers.*.feed_forward.w3.weight", "model.layers.*.mlp.up_proj.weight", "out_in", AS_IS},
    {"norm.weight", "model.norm.weight", "plain", AS_IS},
    {"output.weight", "lm_head.weight", "out_in", AS_IS},
    {"freqs_cos", NULL, NULL, DROPPED},
    {"freqs_sin", NULL, NULL, DROPPED},
    {"rope.freqs", NULL, NULL, DROPPED},
    {NULL, NULL, NULL, AS_IS},
};

/* What torch.compile, DistributedDataParallel and the classes around a model put in front. */
static const char *const gpt2_prefixes[] = {"_orig_mod.", "module.", "transformer.", NULL};
static const char *const llama_prefixes[] = {"_orig_mod.", "module.", "model.", NULL};
static const char *const meta_prefixes[] = {"_orig_mod.", "module.", NULL};

static const struct dialect dialects[] = {
    {"nanoGPT", "gpt2", "h.0.attn.c_attn.weight", 1, gpt2_prefixes, nanogpt_rules},
    {"Hugging Face", "gpt2", "h.0.attn.c_attn.weight", -1, gpt2_prefixes, gpt2_rules},
    {"Hugging Face", "llama", "layers.0.self_attn.q_proj.weight", 0, llama_prefixes, llama_rules},
    {"Meta", "llama", "layers.0.attention.wq.weight", 0, meta_prefixes, meta_rules},
};

static const char *cut_prefixes(const char *name, const char *const *prefixes)
{
    for (const char *const *p = prefixes; *p; p++)
        if (strncmp(name, *p, strlen(*p)) == 0)
            name += strlen(*p);
    return name;
}

static bool is_weight(const struct ckpt_array *x)
{
    return strcmp(x->group, "model") == 0;
}

static bool is_of(const struct dialect *d, const struct source *s)
{
    for (int i = 0; i < s->n_arrays; i++) {
        const struct ckpt_array *x = &s->arrays[i];
        if (is_weight(x) && strcmp(cut_prefixes(x->name, d->prefixes), d->marker) == 0)
            return d->turned == 0 || (x->shape.n_dims == 2 &&
                                      x->shape.dim[0] == 3 * x->shape.dim[1]) == (d->turned > 0);
    }
    return false;
}

/* The digits that * stands for are [*digits, *digits + *n). */
static bool matches(const char *pattern, const char *name, const char **digits, int *n)
{
    *n = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern)
                return false;
            continue;
        }
        *digits = name;
        while (isdigit((unsigned char)*name))
            name++;
        *n = (int)(name - *digits);
        if (*n == 0)
            return false;
    }
    return !*name;
}

static const char *fill(const char *pattern, const char *digits, int n, struct arena *a)
{
    const char *star = strchr(pattern, '*');
    if (!star)
        return pattern;
    return arena_printf(a, "%.*s%.*s%s", (int)(star - pattern), pattern, n, digits, star + 1);
}

static int64_t config_number(const struct source *s, const char *key, const char *other)
{
    int64_t v = 0;
    if (s->config && json_get(s->config, key) && json_get_i64(s->config, key, &v) == ERR_OK)
        return v;
    if (other && s->config && json_get(s->config, other) &&
        json_get_i64(s->config, other, &v) == ERR_OK)
        return v;
    return 0;
}

static int set_halves(const struct source *s, struct weight *w, int64_t heads)
{
    const struct shape *h = &w->x.shape;
    if (heads < 1)
        FAIL(ERR_DATA,
             "%s has Meta's names: the number of heads must be given (config.json, or "
             "model.num_attention_heads)",
             s->path);
    if (h->n_dims != 2 || h->dim[0] % heads != 0 || h->dim[0] / heads % 2 != 0)
        FAIL(ERR_DATA, "%s: %lld heads do not divide %s into even parts", s->path, (long long)heads,
             w->x.name);
    w->turn = TURN_HALVES;
    w->head_rows = h->dim[0] / heads;
    return ERR_OK;
}

static int take(const struct source *s, const struct dialect *d, int i, int64_t n_head,
                int64_t n_kv_head, struct arena *a, struct weights *out)
{
    const char *name = cut_prefixes(s->arrays[i].name, d->prefixes), *digits = NULL;
    int n = 0;
    const struct rule *r = d->rules;
    while (r->from && !matches(r->from, name, &digits, &n))
        r++;
    if (!r->from)
        FAIL(ERR_DATA, "%s: \"%s\" is no tensor of a %s model in %s's names", s->path,
             s->arrays[i].name, d->family, d->name);
    if (r->how == DROPPED)
        return ERR_OK;
    struct weight *w = &out->rows[out->n++];
    *w = (struct weight){.x = s->arrays[i], .from = i};
    w->x.name = fill(r->to, digits, n, a);
    w->x.layout = r->layout;
    if (w->x.dtype == DTYPE_COUNT || !(w->x.dtype <= DTYPE_F16))
        FAIL(ERR_DATA, "%s: \"%s\" is of dtype %s, not of one of floats", s->path,
             s->arrays[i].name, s->dtype_words ? s->dtype_words[i] : dtype_name(w->x.dtype));
    if (r->how == Q_ROWS || r->how == K_ROWS)
        return set_halves(s, w, r->how == Q_ROWS ? n_head : n_kv_head);
    if (r->how == TRANSPOSED) {
        if (w->x.shape.n_dims != 2)
            FAIL(ERR_DATA, "%s: \"%s\" is no matrix", s->path, s->arrays[i].name);
        w->turn = TURN_TRANSPOSE;
        w->x.shape = shape_make(2, w->x.shape.dim[1], w->x.shape.dim[0]);
    }
    return ERR_OK;
}

/* A source of no dialect, and checkpoints of our own: names and layouts as they are. */
static int take_as_is(const struct source *s, struct arena *a, struct weights *out)
{
    for (int i = 0; i < s->n_arrays; i++) {
        if (!is_weight(&s->arrays[i]))
            continue;
        struct weight *w = &out->rows[out->n++];
        *w = (struct weight){.x = s->arrays[i], .from = i};
        if (w->x.dtype == DTYPE_COUNT)
            FAIL(ERR_DATA, "%s: \"%s\" is of dtype %s, which is not read", s->path, w->x.name,
                 s->dtype_words[i]);
        if (!w->x.layout && s->meta) {
            const struct json *l =
                json_get(s->meta, arena_printf(a, "layout:%s", s->arrays[i].name));
            w->x.layout = l ? l->text : NULL;
        }
    }
    return ERR_OK;
}

void weights_all(const struct source *s, struct arena *a, struct weights *out)
{
    *out = (struct weights){.source = s, .dialect = "its own", .n = s->n_arrays};
    out->rows = arena_alloc(a, ((size_t)s->n_arrays + 1) * sizeof *out->rows);
    for (int i = 0; i < s->n_arrays; i++)
        out->rows[i] = (struct weight){.x = s->arrays[i], .from = i};
}

static int by_name(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    return strcmp(x->x.name, y->x.name);
}

static int check_twice(const struct weights *w)
{
    for (int i = 1; i < w->n; i++)
        if (by_name(&w->rows[i - 1], &w->rows[i]) == 0)
            FAIL(ERR_DATA, "%s: \"%s\" and \"%s\" are both %s", w->source->path,
                 w->source->arrays[w->rows[i - 1].from].name,
                 w->source->arrays[w->rows[i].from].name, w->rows[i].x.name);
    return ERR_OK;
}

int weights_name(const struct source *s, int64_t n_head, int64_t n_kv_head, struct arena *a,
                 struct weights *out)
{
    *out = (struct weights){.source = s};
    out->rows = arena_alloc(a, ((size_t)s->n_arrays + 1) * sizeof *out->rows);
    if (n_head <= 0)
        n_head = config_number(s, "num_attention_heads", "n_heads");
    if (n_kv_head <= 0)
        n_kv_head = config_number(s, "num_key_value_heads", "n_kv_heads");
    const struct dialect *d = NULL;
    for (size_t i = 0; !s->ckpt && !d && i < sizeof dialects / sizeof *dialects; i++)
        if (is_of(&dialects[i], s))
            d = &dialects[i];
    if (d) {
        out->family = d->family;
        out->dialect = d->name;
        for (int i = 0; i < s->n_arrays; i++)
            if (is_weight(&s->arrays[i]))
                TRY(take(s, d, i, n_head, n_kv_head > 0 ? n_kv_head : n_head, a, out));
    } else {
        out->dialect = s->ckpt ? "its own" : "unknown";
        TRY(take_as_is(s, a, out));
    }
    qsort(out->rows, (size_t)out->n, sizeof *out->rows, by_name);
    return check_twice(out);
}

int weights_find(const struct weights *w, const char *name)
{
    struct weight key = {.x = {.name = name}};
    const struct weight *hit = bsearch(&key, w->rows, (size_t)w->n, sizeof *w->rows, by_name);
    return hit ? (int)(hit - w->rows) : -1;
}
