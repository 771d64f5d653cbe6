/* safetensors under transformers' names, with config.json beside them. */
#include "train/convert_impl.h"

#include "base/file.h"
#include "ckpt/safetensors.h"
#include <stdlib.h>
#include <string.h>

/* GPT-2 in transformers always has biases: where this model has none, zeros give the same. */
static void add_zero_bias(struct converting *v, const char *name, const struct ckpt_array *x,
                          const char *layout)
{
    size_t n = strlen(name) - strlen("weight");
    struct ckpt_array bias = *x;
    bias.shape = shape_make(1, x->shape.dim[strcmp(layout, "in_out") == 0], 0);
    convert_add(v, arena_printf(v->a, "%.*sbias", (int)n, name), &bias);
}

/* Rows of q and k as transformers' Llama wants them, where the model was trained with the other
 * order. */
static void turn_rotary(struct converting *v)
{
    static const char *const names[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                        "self_attn.q_proj.lora_B.weight",
                                        "self_attn.k_proj.lora_B.weight"};
    if (!convert_key_is(v, "rope_interleaved", "true"))
        return;
    const char *head_dim = source_model_key(&v->m, "head_dim", v->a);
    REQUIRE(head_dim);
    for (int i = 0; i < v->m.weights.n; i++) {
        struct weight *w = &v->m.weights.rows[i];
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strstr(w->x.name, names[k])) {
                w->turn = TURN_HALVES;
                w->head_rows = atoll(head_dim);
            }
    }
    /* what is written lies in halves, so the job that goes with it has to say so */
    source_model_set(&v->m, "rope_interleaved", "false", v->a);
}

static bool is_head(const char *name)
{
    return strncmp(name, "lm_head.", 8) == 0;
}

static const char *hf_name(const struct converting *v, const char *name)
{
    return is_head(name) ? name : arena_printf(v->a, "%s%s", v->m.model->family->hf->prefix, name);
}

/* Tensors of a family that transformers knows, under its names. */
static void list_family(struct converting *v)
{
    const struct tensor_table *t = &v->m.model->table;
    bool no_bias = convert_key_is(v, "bias", "false");
    turn_rotary(v);
    for (int i = 0; i < t->n_rows; i++) {
        const struct tensor_row *row = &t->rows[i];
        const struct ckpt_array *x = &v->m.weights.rows[v->m.from[i]].x;
        if (row->flags & TENSOR_ADAPTER)
            continue;
        struct item *it = convert_add(v, hf_name(v, row->name), x);
        it->weight = v->m.from[i];
        it->adapter = adapter_find(&v->m, i, v->a);
        if (no_bias && (strncmp(row->name, "h.", 2) == 0 || strncmp(row->name, "ln_f.", 5) == 0))
            add_zero_bias(v, it->x.name, x, row->layout);
    }
    if (no_bias)
        text_printf(v->said, "this model has no biases, transformers' GPT-2 always has: zeros are "
                             "written for them\n");
    if (v->m.model->lora) {
        text_printf(v->said, "LoRA adapters are added to the weights beside them\n");
        source_model_set(&v->m, "lora_rank", "0", v->a);
        source_model_set(&v->m, "lora_alpha", "auto", v->a);
        source_model_set(&v->m, "lora_dropout", "0", v->a);
        source_model_set(&v->m, "lora_targets", NULL, v->a);
        if (source_model_drop(&v->m, "group", v->a))
            text_printf(v->said, "[group] sections are left out: they were for the adapters' "
                                 "training\n");
    }
}

/* peft's names: base_model.model. in front, whatever the class. */
static void list_adapters(struct converting *v)
{
    const struct tensor_table *t = &v->m.model->table;
    turn_rotary(v);
    for (int i = 0; i < t->n_rows; i++) {
        const char *name = t->rows[i].name;
        if (!(t->rows[i].flags & TENSOR_ADAPTER))
            continue;
        struct item *it =
            convert_add(v, arena_printf(v->a, "base_model.model.%s", hf_name(v, name)),
                        &v->m.weights.rows[v->m.from[i]].x);
        it->weight = v->m.from[i];
    }
}

static void list_all(struct converting *v)
{
    for (int i = 0; i < v->m.weights.n; i++)
        convert_add(v, v->m.weights.rows[i].x.name, &v->m.weights.rows[i].x)->weight = i;
}

static bool has_hf(const struct converting *v)
{
    return v->m.model && v->m.model->family->hf;
}

/* A number and a unit, as transformers writes it: 5GB; KiB and so on are taken too. */
static int parse_size(const char *text, int64_t *n_bytes)
{
    static const struct {
        const char *word;
        double n;
    } units[] = {{"", 1},     {"B", 1},         {"KB", 1e3},      {"MB", 1e6},
                 {"GB", 1e9}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    char *unit;
    double v = strtod(text, &unit);
    for (size_t i = 0; i < sizeof units / sizeof *units && unit > text; i++)
        if (text_same(unit, units[i].word) && v * units[i].n >= 1 && v * units[i].n < 9e18) {
            *n_bytes = (int64_t)(v * units[i].n);
            return ERR_OK;
        }
    FAIL(ERR_USAGE, "--max_shard_size %s: a number of KB, MB or GB is needed, such as 5GB", text);
}

/* What a way back would miss; layouts only of what has no conventions. */
static const char *const *metadata_of(const struct converting *v, bool apart)
{
    const char **m = arena_alloc(v->a, (2 * (size_t)v->n + 8) * sizeof *m), **at = m;
    const char *meta = apart ? NULL : source_model_meta(&v->m, v->a);
    *at++ = "format"; /* transformers refuses a file without it */
    *at++ = "pt";
    if (meta) {
        *at++ = SOURCE_MODEL_META;
        *at++ = meta;
    }
    for (int i = 0; i < v->n && !has_hf(v); i++)
        if (v->arrays[i].layout) {
            *at++ = arena_printf(v->a, "layout:%s", v->arrays[i].name);
            *at++ = v->arrays[i].layout;
        }
    return m;
}

static int write_config(struct converting *v, const char *folder, bool apart)
{
    struct text t = {0};
    int rc = ERR_OK;
    if (apart)
        adapter_config(&v->m, v->a, &t);
    else
        rc = hf_config_from_model(v->m.model, v->arrays[0].dtype, v->a, &t);
    const char *name = apart ? "adapter_config.json" : "config.json";
    if (rc == ERR_OK)
        rc = file_write(arena_printf(v->a, "%s/%s", folder, name), t.s, t.n_bytes);
    text_clear(&t);
    return rc;
}

static bool is_file(const char *dst)
{
    size_t n = strlen(dst), m = strlen(".safetensors");
    return n > m && strcmp(dst + n - m, ".safetensors") == 0;
}

static int list(struct converting *v, bool apart)
{
    convert_room(v, 2 * (size_t)v->m.weights.n + 2);
    if (apart && !(has_hf(v) && v->m.model->lora))
        FAIL(ERR_DATA, "%s has no LoRA adapters that could be written apart", v->m.source->path);
    if (!has_hf(v) && v->m.model && v->m.model->lora)
        text_printf(v->said, "LoRA adapters stay apart, under their own names\n");
    if (apart)
        list_adapters(v);
    else if (has_hf(v))
        list_family(v);
    else
        list_all(v);
    convert_close_list(v);
    return ERR_OK;
}

/* Everything but the writing.  What is the same under two names is refused by the format's readers,
 * so tied ones stand once. */
static int prepare(struct converting *v, const char *dst, struct safetensors_save *s)
{
    bool apart = v->conf->lora == LORA_APART;
    const char *slash = is_file(dst) ? strrchr(dst, '/') : NULL;
    *s = (struct safetensors_save){.folder = dst,
                                   .name = apart ? "adapter_model.safetensors" : NULL,
                                   .overwrite = v->conf->overwrite,
                                   .fetch = convert_fetch,
                                   .self = v};
    if (is_file(dst)) {
        s->name = slash ? slash + 1 : dst;
        s->folder = !slash         ? "."
                    : slash == dst ? "/"
                                   : arena_strndup(v->a, dst, (size_t)(slash - dst));
    }
    TRY(parse_size(v->conf->max_shard_size, &s->max_file_bytes));
    TRY(list(v, apart));
    s->arrays = v->arrays;
    s->n_arrays = v->n;
    s->metadata = metadata_of(v, apart);
    return ERR_OK;
}

int convert_to_safetensors(struct converting *v, const char *dst)
{
    struct safetensors_save s;
    TRY_ALL(v->c, prepare(v, dst, &s));
    TRY(safetensors_write(v->c, &s, v->a));
    if (is_file(dst))
        text_printf(v->said, "no config.json is written beside a single file: name a folder\n");
    else if (!has_hf(v))
        text_printf(v->said, "no config.json: transformers knows no such model\n");
    bool writes = !is_file(dst) && has_hf(v) && v->c->rank == 0;
    return comm_agree(v->c, writes ? write_config(v, dst, v->conf->lora == LORA_APART) : ERR_OK);
}
