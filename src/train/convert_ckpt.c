/* A checkpoint of any type, for any number of ranks, out of anything. */
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

static int64_t n_blocks(const struct ckpt_array *x)
{
    return (shape_elems(&x->shape) + BLOCK_ELEMS - 1) / BLOCK_ELEMS;
}

/* Pieces of one group's tensors, [first, next), whose blocks are shared out evenly. */
static int cut_group(const struct converting *v, int first, int next, int64_t n_parts,
                     struct ckpt_piece *p)
{
    int64_t n_all = 0, at = 0;
    int n_pieces = 0;
    for (int i = first; i < next; i++)
        n_all += n_blocks(&v->arrays[i]);
    for (int i = first; i < next; i++) {
        int64_t n = shape_elems(&v->arrays[i].shape), end;
        for (int64_t b = 0; b < n_blocks(&v->arrays[i]); b = end) {
            int64_t r = (at + b) * n_parts / n_all; /* the part that has this block */
            end = ((r + 1) * n_all + n_parts - 1) / n_parts - at;
            if (end > n_blocks(&v->arrays[i]))
                end = n_blocks(&v->arrays[i]);
            p[n_pieces++] =
                (struct ckpt_piece){.array = i,
                                    .begin = b * BLOCK_ELEMS,
                                    .end = end * BLOCK_ELEMS < n ? end * BLOCK_ELEMS : n,
                                    .shard = (int)r};
        }
        at += n_blocks(&v->arrays[i]);
    }
    return n_pieces;
}

/* Parts of the concatenation of a group's tensors, as a flat array over the ranks is cut. */
static struct ckpt_piece *cut(const struct converting *v, int64_t n_parts, int *n_pieces)
{
    size_t n_groups = 0;
    for (int i = 0; i < v->n; i++)
        n_groups += i == 0 || strcmp(v->arrays[i].group, v->arrays[i - 1].group) != 0;
    size_t most = (size_t)v->n + n_groups * (size_t)n_parts;
    struct ckpt_piece *p = arena_alloc(v->a, (most + 1) * sizeof *p);
    *n_pieces = 0;
    for (int first = 0, next; first < v->n; first = next) {
        next = first + 1;
        while (next < v->n && strcmp(v->arrays[next].group, v->arrays[first].group) == 0)
            next++;
        *n_pieces += cut_group(v, first, next, n_parts, p + *n_pieces);
    }
    return p;
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

int convert_to_checkpoint(struct converting *v, const char *dst)
{
    static const enum ckpt_type types[] = {
        [CONVERT_FULL] = CKPT_FULL, [CONVERT_SHARDED] = CKPT_SHARDED, [CONVERT_LOCAL] = CKPT_LOCAL};
    const struct source *s = v->m.source;
    enum ckpt_type type = types[v->conf->to];
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
    int64_t step = s->ckpt ? ckpt_step(s->ckpt) : 0;
    TRY(check_free(v, dst, step));
    int n_pieces;
    const struct ckpt_piece *pieces = cut(v, type == CKPT_FULL ? 1 : v->conf->ranks, &n_pieces);
    struct ckpt_save save = {.output_dir = dst,
                             .step = step,
                             .run_id = s->ckpt ? ckpt_run_id(s->ckpt) : "converted",
                             .type = type,
                             .n_shards = (int)v->conf->ranks,
                             .arrays = v->arrays,
                             .n_arrays = v->n,
                             .pieces = pieces,
                             .n_pieces = n_pieces,
                             .meta = meta_text(v),
                             .fetch = convert_fetch,
                             .self = v};
    struct comm *self = comm_self();
    int rc = ckpt_save(self, &save);
    comm_close(&self);
    return rc;
}
