/* What is common to all targets: options, items, their values. */
#include "train/convert_impl.h"

#include "tensor/convert.h"
#include <stdlib.h>
#include <string.h>

static const char *const to_words[] = {"safetensors", "full", "sharded", "local", NULL};
static const char *const dtype_words[] = {"keep",    "float32", "bfloat16",
                                          "float16", "float64", NULL};
static const enum dtype dtypes[] = {DTYPE_COUNT, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64};
static const char *const lora_words[] = {"merge", "apart", NULL};

const struct opt convert_opts[] = {
    ENUM(convert_conf, to, "safetensors", to_words, "what is written"),
    ENUM(convert_conf, dtype, "keep", dtype_words, "of the weights; keep: what the source has"),
    I64(convert_conf, ranks, "1", 1, 100000, "files of a sharded or local checkpoint"),
    BOOL(convert_conf, weights_only, "false", "leave out moments and counters"),
    STR(convert_conf, max_shard_size, "5GB",
        "safetensors: bytes of a file at most (KB, MB, GB); more become several with an index"),
    ENUM(convert_conf, lora, "merge", lora_words,
         "safetensors: adapters added to the weights beside them, or alone, as peft keeps them"),
    BOOL(convert_conf, overwrite, "false", "replace what is there already"),
    {.type = OPT_END},
};

void convert_room(struct converting *v, size_t n)
{
    v->items = arena_alloc(v->a, (n + 1) * sizeof *v->items);
}

struct item *convert_add(struct converting *v, const char *name, const struct ckpt_array *x)
{
    struct item *it = &v->items[v->n++];
    enum dtype t = dtypes[v->conf->dtype];
    *it = (struct item){.x = *x, .weight = -1, .array = -1, .adapter = {.a = -1, .b = -1}};
    it->x.name = name;
    if (t != DTYPE_COUNT && dtype_is_float(x->dtype) && strcmp(x->group, "model") == 0)
        it->x.dtype = t;
    return it;
}

void convert_close_list(struct converting *v)
{
    v->arrays = arena_alloc(v->a, ((size_t)v->n + 1) * sizeof *v->arrays);
    for (int i = 0; i < v->n; i++)
        v->arrays[i] = v->items[i].x;
    v->open_adapter = -1;
}

bool convert_key_is(const struct converting *v, const char *key, const char *value)
{
    const char *is = source_model_key(&v->m, key, v->a);
    return is && strcmp(is, value) == 0;
}

/* In fp32, rounded once. */
static int fetch_merged(struct converting *v, int i, int64_t begin, int64_t end, void *to)
{
    struct item *it = &v->items[i];
    size_t n = (size_t)(end - begin);
    float *sum = malloc(n * sizeof *sum);
    if (!sum)
        FAIL(ERR_RESOURCE, "no memory to merge %s", it->x.name);
    if (v->open_adapter != i && v->open_adapter >= 0)
        adapter_clear(&v->items[v->open_adapter].adapter);
    v->open_adapter = i;
    int rc = weights_read_as(&v->m.weights, it->weight, DTYPE_F32, begin, end, sum);
    if (rc == ERR_OK)
        rc = adapter_add(&it->adapter, &v->m.weights, begin, end, &it->x.shape, sum);
    if (rc == ERR_OK && dtype_convert(it->x.dtype, to, DTYPE_F32, sum, (int64_t)n) > 0)
        rc = err_set(ERR_DATA, "values of %s are beyond the range of %s", it->x.name,
                     dtype_name(it->x.dtype));
    free(sum);
    return rc;
}

int convert_fetch(void *self, int i, int64_t begin, int64_t end, void *to)
{
    struct converting *v = self;
    const struct item *it = &v->items[i];
    if (it->array >= 0)
        return source_read(v->m.source, it->array, begin, end, to);
    if (it->adapter.a >= 0)
        return fetch_merged(v, i, begin, end, to);
    if (it->weight < 0) {
        memset(to, 0, (size_t)(end - begin) * dtype_bytes(it->x.dtype));
        return ERR_OK;
    }
    return weights_read_as(&v->m.weights, it->weight, it->x.dtype, begin, end, to);
}

static int find(struct converting *v, const struct source *s, int n_overrides,
                const char *const *overrides)
{
    TRY(source_model_find(s, n_overrides, overrides, v->a, &v->m));
    if (v->m.weights.n == 0)
        FAIL(ERR_DATA, "%s holds no weights", s->path);
    return ERR_OK;
}

static int convert(struct converting *v, const struct source *s, const char *dst, int n_overrides,
                   const char *const *overrides)
{
    int64_t n_bytes = 0;
    char size[32];
    TRY_ALL(v->c, find(v, s, n_overrides, overrides));
    TRY(v->conf->to == CONVERT_SAFETENSORS ? convert_to_safetensors(v, dst)
                                           : convert_to_checkpoint(v, dst));
    for (int i = 0; i < v->n; i++)
        n_bytes += shape_elems(&v->arrays[i].shape) * (int64_t)dtype_bytes(v->arrays[i].dtype);
    text_printf(v->said, "%s: %s, %d tensors, %s, from %s (%s, names: %s)\n", dst,
                to_words[v->conf->to], v->n, text_bytes(size, (double)n_bytes), s->path,
                s->ops->name, v->m.weights.dialect);
    return ERR_OK;
}

int convert_source(struct comm *c, const struct source *s, const char *dst,
                   const struct convert_conf *conf, int n_overrides, const char *const *overrides,
                   struct text *said)
{
    struct converting v = {
        .c = c, .conf = conf, .a = arena_create(), .said = said, .open_adapter = -1};
    int rc = convert(&v, s, dst, n_overrides, overrides);
    if (v.open_adapter >= 0)
        adapter_clear(&v.items[v.open_adapter].adapter);
    arena_destroy(&v.a);
    return rc;
}

int convert_final(const struct run *r)
{
    const struct convert_conf conf = {
        .to = CONVERT_SAFETENSORS, .ranks = 1, .max_shard_size = "5GB", .overwrite = true};
    const char *dir = r->conf.main.output_dir;
    struct text said = {0};
    struct source *s = NULL;
    if (r->conf.ckpt.final_export == EXPORT_NONE)
        return ERR_OK;
    int64_t step = r->batching.total_steps;
    bool was_finished = r->from && r->resume.step >= step;
    const char *last = was_finished
                           ? ckpt_dir(r->from)
                           : arena_printf(r->arena, "%s/step-%08lld", dir, (long long)step);
    int rc = comm_agree(r->comm, source_open(last, &s));
    if (rc == ERR_OK)
        rc = convert_source(r->comm, s, arena_printf(r->arena, "%s/safetensors", dir), &conf, 0,
                            NULL, &said);
    if (rc == ERR_OK && said.s)
        comm_print(r->comm, "%.*s", (int)said.n_bytes - 1, said.s);
    source_close(&s);
    text_clear(&said);
    return rc;
}
