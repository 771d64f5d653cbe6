/* The list of what is to be written, and the values of each item. */
#include "train/convert.h"

#include "base/file.h"
#include "ckpt/safetensors.h"
#include "tensor/convert.h"
#include <stdlib.h>
#include <string.h>

static const char *const to_words[] = {"auto", "safetensors", NULL};
static const char *const dtype_words[] = {"keep",    "float32", "bfloat16",
                                          "float16", "float64", NULL};
static const enum dtype dtypes[] = {DTYPE_COUNT, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64};

const struct opt convert_opts[] = {
    ENUM(convert_conf, to, "auto", to_words, "what is written; auto: safetensors"),
    ENUM(convert_conf, dtype, "keep", dtype_words, "of the weights; keep: what the source has"),
    STR(convert_conf, max_shard_size, "5GB",
        "safetensors: bytes of a file at most (KB, MB, GB); more become several with an index"),
    BOOL(convert_conf, overwrite, "false", "replace what is there already"),
    {.type = OPT_END},
};

/* One tensor that is written. */
struct item {
    struct ckpt_array x;
    int weight; /* of the source's; -1: zeros */
};

struct converting {
    const struct convert_conf *conf; /* borrowed */
    struct arena *a;                 /* owned */
    struct source_model m;
    struct item *items;
    struct ckpt_array *arrays; /* of the items */
    int n;
    struct text *said; /* borrowed */
};

static enum dtype dtype_of(const struct converting *v, enum dtype now)
{
    enum dtype t = dtypes[v->conf->dtype];
    return t == DTYPE_COUNT || !dtype_is_float(now) ? now : t;
}

static void add(struct converting *v, const char *name, const struct weight *w, int number)
{
    struct item *it = &v->items[v->n++];
    *it = (struct item){.x = w->x, .weight = number};
    it->x.group = "model";
    it->x.name = name;
    it->x.dtype = dtype_of(v, w->x.dtype);
}

/* GPT-2 in transformers always has biases: where this model has none, zeros give the same. */
static void add_zero_bias(struct converting *v, const char *name, const struct weight *w,
                          const char *layout)
{
    size_t n = strlen(name) - strlen("weight");
    int out_dim = strcmp(layout, "in_out") == 0;
    struct weight bias = *w;
    bias.x.shape = shape_make(1, w->x.shape.dim[out_dim], 0);
    add(v, arena_printf(v->a, "%.*sbias", (int)n, name), &bias, -1);
}

static bool key_is(const struct converting *v, const char *key, const char *value)
{
    const char *is = source_model_key(&v->m, key, v->a);
    return is && strcmp(is, value) == 0;
}

/* Rows of q and k as transformers' Llama wants them, where the model was trained with the other
 * order. */
static void turn_rotary(struct converting *v)
{
    static const char *const names[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight"};
    if (!key_is(v, "rope_interleaved", "true"))
        return;
    const char *head_dim = source_model_key(&v->m, "head_dim", v->a);
    REQUIRE(head_dim);
    for (int i = 0; i < v->m.weights.n; i++) {
        struct weight *w = &v->m.weights.rows[i];
        for (int k = 0; k < 2; k++)
            if (strstr(w->x.name, names[k])) {
                w->turn = TURN_HALVES;
                w->head_rows = atoll(head_dim);
            }
    }
    /* what is written lies in halves, so the job that goes with it has to say so */
    const char *line = "rope_interleaved = true", *at = strstr(v->m.job_text, line);
    if (at)
        v->m.job_text = arena_printf(v->a, "%.*srope_interleaved = false%s",
                                     (int)(at - v->m.job_text), v->m.job_text, at + strlen(line));
}

/* Tensors of a family that transformers knows, under its names. */
static void list_family(struct converting *v)
{
    const struct tensor_table *t = &v->m.model->table;
    const char *prefix = v->m.model->family->hf->prefix;
    bool no_bias = key_is(v, "bias", "false");
    turn_rotary(v);
    for (int i = 0; i < t->n_rows; i++) {
        const struct tensor_row *row = &t->rows[i];
        const struct weight *w = &v->m.weights.rows[v->m.from[i]];
        bool head = strncmp(row->name, "lm_head.", 8) == 0;
        const char *name = head ? row->name : arena_printf(v->a, "%s%s", prefix, row->name);
        add(v, name, w, v->m.from[i]);
        if (no_bias && !head &&
            (strncmp(row->name, "h.", 2) == 0 || strncmp(row->name, "ln_f.", 5) == 0))
            add_zero_bias(v, name, w, row->layout);
    }
    if (no_bias)
        text_printf(v->said, "this model has no biases, transformers' GPT-2 always has: zeros are "
                             "written for them\n");
}

static void list_all(struct converting *v)
{
    for (int i = 0; i < v->m.weights.n; i++)
        add(v, v->m.weights.rows[i].x.name, &v->m.weights.rows[i], i);
}

static bool has_hf(const struct converting *v)
{
    return v->m.model && v->m.model->family->hf;
}

static void list_items(struct converting *v)
{
    size_t most = 2 * (size_t)v->m.weights.n + 2;
    v->items = arena_alloc(v->a, most * sizeof *v->items);
    if (has_hf(v))
        list_family(v);
    else
        list_all(v);
    v->arrays = arena_alloc(v->a, most * sizeof *v->arrays);
    for (int i = 0; i < v->n; i++)
        v->arrays[i] = v->items[i].x;
}

static int fetch(void *self, int i, int64_t begin, int64_t end, void *to)
{
    const struct converting *v = self;
    const struct item *it = &v->items[i];
    if (it->weight < 0) {
        memset(to, 0, (size_t)(end - begin) * dtype_bytes(it->x.dtype));
        return ERR_OK;
    }
    return weights_read_as(&v->m.weights, it->weight, it->x.dtype, begin, end, to);
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

/* Layouts only of what has no conventions, and what a way back would miss. */
static const char *const *metadata_of(const struct converting *v)
{
    const char **m = arena_alloc(v->a, (2 * (size_t)v->n + 8) * sizeof *m), **at = m;
    const char *meta = source_model_meta(&v->m, v->a);
    *at++ = "format"; /* transformers refuses a file without it */
    *at++ = "pt";
    if (meta) {
        *at++ = "stretto";
        *at++ = meta;
    }
    for (int i = 0; i < v->n && !has_hf(v); i++)
        if (v->arrays[i].layout) {
            *at++ = arena_printf(v->a, "layout:%s", v->arrays[i].name);
            *at++ = v->arrays[i].layout;
        }
    return m;
}

/* What is the same under two names is refused by the format's readers, so tied ones stand once. */
static int write_safetensors(struct converting *v, const char *dst)
{
    size_t n = strlen(dst), m = strlen(".safetensors");
    bool is_file = n > m && strcmp(dst + n - m, ".safetensors") == 0;
    const char *slash = is_file ? strrchr(dst, '/') : NULL;
    struct safetensors_save s = {.folder = dst,
                                 .arrays = v->arrays,
                                 .n_arrays = v->n,
                                 .metadata = metadata_of(v),
                                 .overwrite = v->conf->overwrite,
                                 .fetch = fetch,
                                 .self = v};
    if (is_file) {
        s.name = slash ? slash + 1 : dst;
        s.folder = !slash         ? "."
                   : slash == dst ? "/"
                                  : arena_strndup(v->a, dst, (size_t)(slash - dst));
    }
    TRY(parse_size(v->conf->max_shard_size, &s.max_file_bytes));
    TRY(safetensors_write(&s, v->a));
    if (is_file) {
        text_printf(v->said, "no config.json is written beside a single file: name a folder\n");
        return ERR_OK;
    }
    if (!has_hf(v)) {
        text_printf(v->said, "no config.json: transformers knows no such model\n");
        return ERR_OK;
    }
    struct text config = {0};
    int rc = hf_config_from_model(v->m.model, v->arrays[0].dtype, v->a, &config);
    if (rc == ERR_OK)
        rc = file_write(arena_printf(v->a, "%s/config.json", dst), config.s, config.n_bytes);
    text_clear(&config);
    return rc;
}

static int convert(struct converting *v, const struct source *s, const char *dst, int n_overrides,
                   const char *const *overrides)
{
    int64_t n_bytes = 0;
    char size[32];
    TRY(source_model_find(s, n_overrides, overrides, v->a, &v->m));
    if (v->m.model && v->m.model->lora)
        FAIL(ERR_DATA, "%s has LoRA adapters, which are not merged yet", s->path);
    list_items(v);
    if (v->n == 0)
        FAIL(ERR_DATA, "%s holds no weights", s->path);
    TRY(write_safetensors(v, dst));
    for (int i = 0; i < v->n; i++)
        n_bytes += shape_elems(&v->arrays[i].shape) * (int64_t)dtype_bytes(v->arrays[i].dtype);
    text_printf(v->said, "%s: %d tensors, %s, from %s (%s, names: %s)\n", dst, v->n,
                text_bytes(size, (double)n_bytes), s->path, s->ops->name, v->m.weights.dialect);
    return ERR_OK;
}

int convert_source(const struct source *s, const char *dst, const struct convert_conf *c,
                   int n_overrides, const char *const *overrides, struct text *said)
{
    struct converting v = {.conf = c, .a = arena_create(), .said = said};
    int rc = convert(&v, s, dst, n_overrides, overrides);
    arena_destroy(&v.a);
    return rc;
}
