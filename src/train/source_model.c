/* Where a model's keys come from, in the order of trust: job, config.json, shapes. */
#include "train/source_model.h"

#include "base/hash.h"
#include "train/setup.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct ckpt_array *weight_named(const struct weights *w, const char *name)
{
    int i = weights_find(w, name);
    return i < 0 ? NULL : &w->rows[i].x;
}

static int64_t dim_of(const struct weights *w, const char *name, int d)
{
    const struct ckpt_array *x = weight_named(w, name);
    return x && d < x->shape.n_dims ? x->shape.dim[d] : 0;
}

static int64_t count_layers(const struct weights *w, const char *prefix)
{
    int64_t n = 0;
    size_t k = strlen(prefix);
    for (int i = 0; i < w->n; i++) {
        const char *name = w->rows[i].x.name;
        if (strncmp(name, prefix, k) == 0 && isdigit((unsigned char)name[k]) &&
            atoll(name + k) >= n)
            n = atoll(name + k) + 1;
    }
    return n;
}

/* Sizes that shapes tell; how many heads there are, they do not. */
static void guess_model(const struct weights *w, struct text *t)
{
    if (strcmp(w->family, "gpt2") == 0) {
        int64_t n_inner = dim_of(w, "h.0.mlp.c_fc.weight", 1);
        text_printf(t, "type = gpt2\nn_layer = %lld\nn_embd = %lld\nblock_size = %lld\n",
                    (long long)count_layers(w, "h."), (long long)dim_of(w, "wte.weight", 1),
                    (long long)dim_of(w, "wpe.weight", 0));
        text_printf(t, "n_inner = %lld\nvocab_size = %lld\nbias = %s\n", (long long)n_inner,
                    (long long)dim_of(w, "wte.weight", 0),
                    weight_named(w, "ln_f.bias") ? "true" : "false");
        return;
    }
    text_printf(t, "type = llama\nnum_hidden_layers = %lld\nhidden_size = %lld\n",
                (long long)count_layers(w, "model.layers."),
                (long long)dim_of(w, "model.embed_tokens.weight", 1));
    text_printf(t, "intermediate_size = %lld\nvocab_size = %lld\ntie_word_embeddings = %s\n",
                (long long)dim_of(w, "model.layers.0.mlp.gate_proj.weight", 0),
                (long long)dim_of(w, "model.embed_tokens.weight", 0),
                weight_named(w, "lm_head.weight") ? "false" : "true");
}

/* The job's model alone: no data, no file is opened. */
static int build_from_job(struct source_model *m, const struct job *job,
                          const struct sample_shape *shape, struct arena *a)
{
    struct run_conf conf;
    const char *key = "type";
    TRY(run_conf_model(job, a, &conf));
    struct lora *lora = arena_alloc(a, sizeof *lora); /* the model borrows it */
    *lora = conf.lora;
    if (model_build(conf.model_name ? conf.model_name : "", conf.family, conf.family_conf,
                    lora->rank > 0 ? lora : NULL, shape, a, &key, &m->model) != ERR_OK)
        return job_error(job, "model", conf.model_name, key, "%s", err_text());
    return ERR_OK;
}

static int model_from_meta(struct source_model *m, int n_overrides, struct arena *a)
{
    struct sample_shape shape = {0};
    struct job *job;
    TRY(json_get_string(m->meta, "job", &m->job_text));
    if (n_overrides > 0)
        FAIL(ERR_USAGE, "%s keeps its own job: no key of it can be replaced here", m->source->path);
    TRY(run_meta_shape(m->meta, &shape));
    TRY(job_parse(m->source->path, m->job_text, strlen(m->job_text), 0, NULL, run_kinds(a), a,
                  &job));
    TRY(job_check(job, run_kinds(a)));
    return build_from_job(m, job, &shape, a);
}

static int check_heads(const struct job *job, const struct source_model *m)
{
    static const char *const keys[] = {"n_head", "num_attention_heads"};
    for (int i = 0; i < 2; i++)
        if (job_value(job, "model", keys[i]))
            return ERR_OK;
    FAIL(ERR_USAGE,
         "%s: there is no config.json beside it, and shapes do not tell the number of heads: say "
         "model.%s=N",
         m->source->path, keys[strcmp(m->weights.family, "llama") == 0]);
}

static int model_from_outside(struct source_model *m, int n_overrides, const char *const *overrides,
                              struct arena *a)
{
    const struct source *s = m->source;
    struct sample_shape shape = {.kind = SAMPLE_TOKENS};
    struct text t = {0};
    struct job *job;
    text_printf(&t, "[model]\n");
    if (s->config && hf_config_to_model(s->config, a, &t) != ERR_OK) {
        err_prefix("%s: the model's configuration", s->path);
        text_clear(&t);
        return ERR_DATA;
    }
    if (!s->config)
        guess_model(&m->weights, &t);
    m->job_text = arena_strdup(a, t.s);
    text_clear(&t);
    TRY(job_parse(s->path, m->job_text, strlen(m->job_text), n_overrides, overrides, run_kinds(a),
                  a, &job));
    TRY(job_check(job, run_kinds(a)));
    TRY(check_heads(job, m));
    shape.vocab = strcmp(m->weights.family, "gpt2") == 0
                      ? dim_of(&m->weights, "wte.weight", 0)
                      : dim_of(&m->weights, "model.embed_tokens.weight", 0);
    TRY(build_from_job(m, job, &shape, a));
    job_print_resolved(job, &t); /* overrides included */
    m->job_text = arena_strdup(a, t.s);
    text_clear(&t);
    return ERR_OK;
}

/* Overrides may be needed to read the names already (Meta's). */
static int64_t override_number(int n, const char *const *overrides, const char *key)
{
    size_t k = strlen(key);
    int64_t v = 0;
    for (int i = 0; i < n; i++)
        if (strncmp(overrides[i], key, k) == 0 && overrides[i][k] == '=')
            v = atoll(overrides[i] + k + 1);
    return v;
}

static int find_meta(struct source_model *m, struct arena *a)
{
    const struct source *s = m->source;
    const struct json *kept = s->ckpt ? NULL : json_get(s->meta, SOURCE_MODEL_META);
    m->meta = s->ckpt ? s->meta : NULL;
    if (kept && json_parse(kept->text, strlen(kept->text), a, &m->meta) != ERR_OK) {
        err_prefix("%s: __metadata__: %s", s->path, SOURCE_MODEL_META);
        return ERR_DATA;
    }
    if (m->meta && m->meta->type != JSON_OBJECT)
        FAIL(ERR_DATA, "%s: __metadata__: %s is no object", s->path, SOURCE_MODEL_META);
    return ERR_OK;
}

int source_model_find(const struct source *s, int n_overrides, const char *const *overrides,
                      struct arena *a, struct source_model *m)
{
    static const struct weights_rules strict = {0};
    *m = (struct source_model){.source = s};
    TRY(weights_name(s, override_number(n_overrides, overrides, "model.num_attention_heads"),
                     override_number(n_overrides, overrides, "model.num_key_value_heads"), a,
                     &m->weights));
    TRY(find_meta(m, a));
    if (m->meta) {
        int rc = model_from_meta(m, n_overrides, a);
        if (rc == ERR_DATA)
            err_prefix("%s", s->path);
        TRY(rc);
    } else if (m->weights.family) {
        TRY(model_from_outside(m, n_overrides, overrides, a));
    } else {
        return ERR_OK;
    }
    m->from = arena_alloc(a, ((size_t)m->model->table.n_rows + 1) * sizeof *m->from);
    return weights_match(&m->weights, &m->model->table, &strict, m->from);
}

const char *source_model_key(const struct source_model *m, const char *key, struct arena *a)
{
    const struct opt *o = m->model ? opt_find(m->model->family->opts, key) : NULL;
    return o ? opt_print(o, m->model->conf, a) : NULL;
}

/* A resolved job has a key to a line, and no section but [model] and its variants has these. */
void source_model_set(struct source_model *m, const char *key, const char *value, struct arena *a)
{
    const char *line = arena_printf(a, "\n%s = ", key), *at = strstr(m->job_text, line);
    if (!at)
        return;
    const char *end = strchr(at + 1, '\n');
    m->job_text = arena_printf(a, "%.*s%s%s%s", (int)(at - m->job_text), m->job_text,
                               value ? line : "", value ? value : "", end ? end : "");
}

bool source_model_drop(struct source_model *m, const char *kind, struct arena *a)
{
    size_t n = strlen(kind);
    struct text t = {0};
    bool inside = false, any = false;
    for (const char *at = m->job_text, *end; *at; at = end) {
        end = strchr(at, '\n');
        end = end ? end + 1 : at + strlen(at);
        if (*at == '[') {
            bool same = strncmp(at + 1, kind, n) == 0;
            inside = same && (at[n + 1] == ']' || at[n + 1] == '.');
            any |= inside;
        }
        if (!inside)
            text_add(&t, at, (size_t)(end - at));
    }
    m->job_text = t.s ? arena_strndup(a, t.s, t.n_bytes) : "";
    text_clear(&t);
    return any;
}

/* What a checkpoint keeps of a run, of which there was none. */
static void put_fresh(const struct source_model *m, struct text *t)
{
    const struct sample_shape *s = &m->model->shape;
    uint64_t id = hash64(m->job_text, strlen(m->job_text), 0);
    text_printf(t, "{\"step\": 0, \"epoch\": 0, \"index\": 0, \"samples\": 0, \"tokens\": 0, "
                   "\"metrics_bytes\": 0, \"micro_global\": 1, \"accumulation\": 1, \"world\": 1, "
                   "\"seed\": 0, \"name\": ");
    text_json_string(t, m->source->path);
    text_printf(t,
                ", \"run_id\": \"%016llx\", \"strategy\": \"NO\", \"plan\": \"\", \"optimizer\": "
                "\"none\", ",
                (unsigned long long)id);
    text_printf(t,
                "\"model\": \"%s\", \"shape\": {\"kind\": %d, \"T\": %lld, \"vocab\": %lld, "
                "\"n_in\": %lld, \"n_out\": %lld}, \"vocab\": null, \"job\": ",
                m->model->family->name, (int)s->kind, (long long)s->T, (long long)s->vocab,
                (long long)s->n_in, (long long)s->n_out);
    text_json_string(t, m->job_text);
    text_printf(t, ", \"weights_only\": true}");
}

const char *source_model_meta(const struct source_model *m, struct arena *a)
{
    struct text t = {0};
    if (m->meta) {
        text_printf(&t, "{");
        for (const struct json *j = m->meta->child; j; j = j->next) {
            if (strcmp(j->key, "weights_only") == 0)
                continue;
            text_json_string(&t, j->key);
            text_printf(&t, ":");
            if (strcmp(j->key, "job") == 0)
                text_json_string(&t, m->job_text);
            else
                json_print(j, &t);
            text_printf(&t, ",");
        }
        text_printf(&t, "\"weights_only\":true}");
    } else if (m->model) {
        put_fresh(m, &t);
    }
    const char *out = t.s ? arena_strdup(a, t.s) : NULL;
    text_clear(&t);
    return out;
}
