/* A checkpoint of any type, for any number of ranks, out of anything: what it holds. */
#include "train/convert_impl.h"

#include <string.h>
#include <sys/stat.h>

/* Of a checkpoint everything, or its weights. */
static void list_checkpoint(struct converting *v)
{
    const struct source *s = v->m.source;
    convert_room(v, (size_t)s->n_arrays);
    for (int i = 0; i < s->n_arrays; i++) {
        bool is_weight = strcmp(s->arrays[i].group, "model") == 0;
        if (!is_weight && v->conf->weights_only)
            continue;
        struct item *it = convert_add(v, s->arrays[i].name, &s->arrays[i]);
        if (is_weight)
            it->weight = weights_find(&v->m.weights, s->arrays[i].name);
        else
            it->array = i;
    }
}

static void list_model(struct converting *v)
{
    const struct tensor_table *t = &v->m.model->table;
    convert_room(v, (size_t)t->n_rows);
    for (int i = 0; i < t->n_rows; i++) {
        struct ckpt_array x = v->m.weights.rows[v->m.from[i]].x;
        x.layout = t->rows[i].layout;
        x.alias = t->rows[i].alias;
        convert_add(v, t->rows[i].name, &x)->weight = v->m.from[i];
    }
}

static const char *meta_text(const struct converting *v)
{
    struct text t = {0};
    if (!v->m.source->ckpt || v->conf->weights_only)
        return source_model_meta(&v->m, v->a);
    json_print(v->m.meta, &t);
    const char *out = arena_strdup(v->a, t.s);
    text_clear(&t);
    return out;
}

static int check_free(const struct converting *v, const char *dst, int64_t step)
{
    struct stat st;
    const char *path = arena_printf(v->a, "%s/step-%08lld", dst, (long long)step);
    if (stat(dst, &st) == 0 && !S_ISDIR(st.st_mode))
        FAIL(ERR_DATA, "%s is a file; a checkpoint is a folder", dst);
    if (stat(path, &st) == 0 && !v->conf->overwrite)
        FAIL(ERR_DATA, "%s is there already: choose another place, or say --overwrite", path);
    return ERR_OK;
}

/* Everything but the writing; the folder is rank 0's to look at. */
static int prepare(struct converting *v, enum ckpt_type type, const char *dst, struct cutting *cut)
{
    const struct source *s = v->m.source;
    if (v->conf->lora == LORA_APART)
        FAIL(ERR_USAGE, "--lora is for safetensors: a checkpoint keeps adapters as they are");
    if (type == CKPT_FULL && v->conf->ranks > 1)
        FAIL(ERR_USAGE, "--ranks %lld: a full checkpoint is one file", (long long)v->conf->ranks);
    if (!s->ckpt && !v->m.model)
        FAIL(ERR_DATA,
             "%s: these tensors are of no model that is known here, and only such a one "
             "has a checkpoint",
             s->path);
    if (s->ckpt)
        list_checkpoint(v);
    else
        list_model(v);
    convert_close_list(v);
    TRY(convert_cut(v, type, meta_text(v), cut));
    return v->c->rank == 0 ? check_free(v, dst, s->ckpt ? ckpt_step(s->ckpt) : 0) : ERR_OK;
}

int convert_to_checkpoint(struct converting *v, const char *dst)
{
    static const enum ckpt_type types[] = {
        [CONVERT_FULL] = CKPT_FULL, [CONVERT_SHARDED] = CKPT_SHARDED, [CONVERT_LOCAL] = CKPT_LOCAL};
    const struct source *s = v->m.source;
    enum ckpt_type type = types[v->conf->to];
    struct cutting cut;
    TRY_ALL(v->c, prepare(v, type, dst, &cut));
    const struct ckpt_save save = {.output_dir = dst,
                                   .step = s->ckpt ? ckpt_step(s->ckpt) : 0,
                                   .run_id = s->ckpt ? ckpt_run_id(s->ckpt) : "converted",
                                   .type = type,
                                   .n_shards = cut.n_files,
                                   .arrays = v->arrays,
                                   .n_arrays = v->n,
                                   .pieces = cut.pieces,
                                   .n_pieces = cut.n_pieces,
                                   .meta = cut.meta,
                                   .fetch = convert_fetch,
                                   .self = v};
    return ckpt_save(v->c, &save);
}
