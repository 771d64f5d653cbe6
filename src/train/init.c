/* Each rank reads the ranges that it holds. */
#include "train/init.h"

#include "ckpt/names.h"
#include <string.h>

struct init {
    struct source *source; /* owned */
    struct weights weights;
    int *from; /* (n_rows) */
};

static const char *key_of(const struct model *m, const char *key, struct arena *a)
{
    const struct opt *o = opt_find(m->family->opts, key);
    return o ? opt_print(o, m->conf, a) : NULL;
}

/* 0 where the family has no such key: then no name asks for it. */
static int64_t heads_of(const struct model *m, const char *key, struct arena *a)
{
    const char *value = key_of(m, key, a);
    int64_t v = 0;
    for (const char *c = value ? value : ""; *c >= '0' && *c <= '9'; c++)
        v = 10 * v + (*c - '0');
    return v;
}

/* A model that pairs neighbouring rows takes Meta's order as it is, and no other. */
static int check_rotary(const struct run *r, struct init *in)
{
    const char *interleaved = key_of(r->model, "rope_interleaved", r->arena);
    if (!interleaved || strcmp(interleaved, "true") != 0)
        return ERR_OK;
    for (int i = 0; i < in->weights.n; i++)
        in->weights.rows[i].turn = TURN_NONE;
    if (in->source->ckpt || strcmp(in->weights.dialect, "Meta") == 0)
        return ERR_OK;
    return job_error(r->conf.job, "model", r->conf.model_name, "rope_interleaved",
                     "%s has q and k in a head's halves: say false to begin with it",
                     in->source->path);
}

static int match(struct run *r)
{
    const struct model_common_conf *c = &r->conf.model;
    struct init *in = r->init;
    const struct weights_rules rules = {.may_miss = &c->init_missing,
                                        .may_be_left = &c->init_unexpected,
                                        .begins = true,
                                        .grow_vocab = c->init_grow_vocab};
    const struct model *m = r->model;
    TRY(weights_name(in->source, heads_of(m, "num_attention_heads", r->arena),
                     heads_of(m, "num_key_value_heads", r->arena), r->arena, &in->weights));
    if (in->weights.family && strcmp(in->weights.family, m->family->name) != 0)
        return job_error(r->conf.job, "model", r->conf.model_name, "init_from",
                         "it holds a %s, type is %s", in->weights.family, m->family->name);
    TRY(check_rotary(r, in));
    in->from = arena_alloc(r->arena, ((size_t)m->table.n_rows + 1) * sizeof *in->from);
    return weights_match(&in->weights, &m->table, &rules, in->from);
}

int init_open(struct run *r)
{
    const struct model_common_conf *c = &r->conf.model;
    const struct {
        const char *key;
        bool set;
    } rest[] = {{"init_missing", c->init_missing.n > 0},
                {"init_unexpected", c->init_unexpected.n > 0},
                {"init_grow_vocab", c->init_grow_vocab}};
    for (int i = 0; i < 3 && !c->init_from; i++)
        if (rest[i].set)
            return job_error(r->conf.job, "model", r->conf.model_name, rest[i].key,
                             "means nothing without init_from");
    if (!c->init_from || r->from || r->purpose != RUN_TRAIN)
        return ERR_OK;
    r->init = arena_alloc(r->arena, sizeof *r->init);
    int rc = source_open(c->init_from, &r->init->source);
    if (rc == ERR_OK)
        rc = match(r);
    if (rc == ERR_DATA) { /* the status is that of data, the words name the key too */
        job_error(r->conf.job, "model", r->conf.model_name, "init_from", "%s",
                  arena_strdup(r->arena, err_text()));
        return ERR_DATA;
    }
    return rc;
}

void init_close(struct run *r)
{
    if (r->init)
        source_close(&r->init->source);
}

int init_load(struct engine *e)
{
    const struct init *in = e->run->init;
    for (int i = 0; i < e->run->model->table.n_rows; i++) {
        struct shard_part p = shard_held_part(e->shard, SHARD_MASTER, i);
        if (in->from[i] < 0 || p.begin >= p.end)
            continue;
        const struct weight *w = &in->weights.rows[in->from[i]];
        int64_t n_there = shape_elems(&w->x.shape), end = p.end < n_there ? p.end : n_there;
        if (p.begin < end)
            TRY(weights_read_as(&in->weights, in->from[i], DTYPE_F32, p.begin, end, p.values));
    }
    return ERR_OK;
}

void init_describe(const struct run *r, struct text *out)
{
    const struct init *in = r->init;
    const struct tensor_table *t = &r->model->table;
    int n_new = 0, n_adapters = 0;
    if (!in) {
        if (r->conf.model.init_from && r->from && r->purpose == RUN_TRAIN)
            text_printf(out, "init     model.init_from rests: the run goes on from %s\n",
                        ckpt_dir(r->from));
        return;
    }
    text_printf(out, "init     %s (%s, names: %s)", in->source->path, in->source->ops->name,
                in->weights.dialect);
    for (int i = 0; i < t->n_rows; i++)
        n_adapters += in->from[i] < 0 && (t->rows[i].flags & TENSOR_ADAPTER);
    if (n_adapters > 0)
        text_printf(out, "; %d adapters' tensors are new", n_adapters);
    for (int i = 0; i < t->n_rows; i++)
        if (in->from[i] < 0 && (t->rows[i].flags & TENSOR_ADAPTER))
            continue;
        else if (in->from[i] < 0)
            text_printf(out, "%s%s", n_new++ ? ", " : "; random: ", t->rows[i].name);
        else if (!shape_equal(&in->weights.rows[in->from[i]].x.shape, &t->rows[i].shape))
            text_printf(out, "; %s: %lld rows of %lld", t->rows[i].name,
                        (long long)in->weights.rows[in->from[i]].x.shape.dim[0],
                        (long long)t->rows[i].shape.dim[0]);
    text_printf(out, "\n");
}
