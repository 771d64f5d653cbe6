/* Building a model from its family and conf. */
#include "model/model.h"

#include "base/text.h"
#include <string.h>

const struct model_family *model_family_find(const char *type)
{
    for (int i = 0; model_list[i]; i++)
        if (text_same(model_list[i]->name, type))
            return model_list[i];
    return NULL;
}

struct layer_search {
    const struct tensor_table *table;
    const char **word; /* last parts of the names of linear layers, each once */
    int n;
};

static void add_layers(struct module *x, void *arg)
{
    struct layer_search *s = arg;
    struct arena *a = s->table->arena;
    if (strcmp(x->ops->cls, "Linear") != 0)
        return;
    for (int i = 0; i < x->n_rows; i++) {
        const char *name = s->table->rows[x->first_row + i].name, *end = strrchr(name, '.');
        if (!end || strcmp(end, ".weight") != 0)
            continue;
        const char *begin = end;
        while (begin > name && begin[-1] != '.')
            begin--;
        const char *word = arena_strndup(a, begin, (size_t)(end - begin));
        bool known = false;
        for (int k = 0; k < s->n; k++)
            known = known || strcmp(s->word[k], word) == 0;
        if (!known)
            s->word[s->n++] = word;
    }
}

static bool is_wanted(const char *target, const struct tensor_table *t)
{
    for (int r = 0; r < t->n_rows; r++) {
        const struct tensor_row *row = &t->rows[r];
        const char *end = strstr(row->name, ".lora_A.weight");
        if (!(row->flags & TENSOR_ADAPTER) || !end)
            continue;
        const char *layer = arena_strndup(t->arena, row->name, (size_t)(end - row->name));
        if (lora_matches(target, layer))
            return true;
    }
    return false;
}

/* Each target has an adapter somewhere; then everything else is frozen. */
static int close_adapters(struct model *m, const char **key)
{
    struct tensor_table *t = &m->table;
    for (int i = 0; i < m->lora->n_targets; i++) {
        if (is_wanted(m->lora->target[i], t))
            continue;
        struct layer_search s = {.table = t};
        struct text list = {0};
        s.word = arena_alloc(m->arena, sizeof *s.word * (size_t)(t->n_rows + 1));
        module_walk(m->root, add_layers, &s);
        for (int k = 0; k < s.n; k++)
            text_printf(&list, "%s%s", k ? ", " : "", s.word[k]);
        *key = "lora_targets";
        int rc = err_set(ERR_USAGE, "no linear layer is called \"%s\"; this model has %s",
                         m->lora->target[i], list.s ? list.s : "none");
        text_clear(&list);
        return rc;
    }
    for (int r = 0; r < t->n_rows; r++)
        if (!(t->rows[r].flags & TENSOR_ADAPTER))
            t->rows[r].flags |= TENSOR_FROZEN;
    return ERR_OK;
}

static const struct lora *choose_targets(const struct lora *lora, const struct model_family *f,
                                         struct arena *a)
{
    if (!lora || lora->n_targets > 0)
        return lora;
    struct lora *own = arena_alloc(a, sizeof *own);
    *own = *lora;
    own->target = f->lora_targets;
    while (own->target[own->n_targets])
        own->n_targets++;
    return own;
}

int model_build(const char *name, const struct model_family *family, void *conf,
                const struct lora *lora, const struct sample_shape *shape, struct arena *a,
                const char **key, struct model **out)
{
    struct model *m = arena_alloc(a, sizeof *m);
    *m = (struct model){
        .name = arena_strdup(a, name),
        .family = family,
        .conf = conf,
        .lora = choose_targets(lora, family, a),
        .shape = *shape,
        .table = {.arena = a},
        .arena = a,
    };
    *key = NULL;
    *out = NULL;
    TRY(family->build(m, conf, key));
    if (m->lora)
        TRY(close_adapters(m, key));
    *out = m;
    return ERR_OK;
}

int64_t model_block_size(const struct model_family *family, const void *conf)
{
    return family->block_size ? family->block_size(conf) : 0;
}
