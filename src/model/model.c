/* Building a model from its family and conf. */
#include "model/model.h"

#include "base/text.h"

const struct model_family *model_family_find(const char *type)
{
    for (int i = 0; model_list[i]; i++)
        if (text_same(model_list[i]->name, type))
            return model_list[i];
    return NULL;
}

int model_build(const char *name, const struct model_family *family, void *conf,
                const struct sample_shape *shape, struct arena *a, const char **key,
                struct model **out)
{
    struct model *m = arena_alloc(a, sizeof *m);
    *m = (struct model){
        .name = arena_strdup(a, name),
        .family = family,
        .conf = conf,
        .shape = *shape,
        .table = {.arena = a},
        .arena = a,
    };
    *key = NULL;
    *out = NULL;
    TRY(family->build(m, conf, key));
    *out = m;
    return ERR_OK;
}

int64_t model_block_size(const struct model_family *family, const void *conf)
{
    return family->block_size ? family->block_size(conf) : 0;
}
