/* A checkpoint's arrays against those that a model expects. */
#include "ckpt/ckpt_impl.h"

#include "tensor/convert.h"
#include <string.h>

static int missing(const struct ckpt *k, const char *group, const char *name)
{
    const char **words = arena_alloc(k->arena, ((size_t)k->m.n_arrays + 1) * sizeof *words);
    int n = 0;
    for (int i = 0; i < k->m.n_arrays; i++)
        if (strcmp(k->m.arrays[i].group, group) == 0)
            words[n++] = k->m.arrays[i].name;
    if (n == 0)
        FAIL(ERR_DATA, "checkpoint %s has no group %s", k->dir, group);
    const char *near = text_nearest(name, words);
    FAIL(ERR_DATA, "checkpoint %s has no %s/%s%s%s%s", k->dir, group, name,
         near ? " (nearest: " : "", near ? near : "", near ? ")" : "");
}

static int match_one(const struct ckpt *k, const struct ckpt_array *x, const struct ckpt_array *e)
{
    char here[128], there[128];
    if (!shape_equal(&x->shape, &e->shape))
        FAIL(ERR_DATA, "checkpoint %s: %s/%s has shape %s, the model wants %s", k->dir, x->group,
             x->name, shape_print(&x->shape, here, sizeof here),
             shape_print(&e->shape, there, sizeof there));
    if (x->dtype != e->dtype && !(dtype_is_float(x->dtype) && dtype_is_float(e->dtype)))
        FAIL(ERR_DATA, "checkpoint %s: %s/%s holds %s, the model wants %s", k->dir, x->group,
             x->name, dtype_name(x->dtype), dtype_name(e->dtype));
    if (e->layout && !x->layout)
        FAIL(ERR_DATA, "checkpoint %s: %s/%s does not say its layout, the model wants %s", k->dir,
             x->group, x->name, e->layout);
    if (e->layout && strcmp(x->layout, e->layout) != 0)
        FAIL(ERR_DATA, "checkpoint %s: %s/%s has layout %s, the model wants %s", k->dir, x->group,
             x->name, x->layout, e->layout);
    return ERR_OK;
}

/* Only once every expected array is there: then the first that is not expected is one too many. */
static int one_too_many(const struct ckpt *k, const char *group, const struct ckpt_array *expected,
                        int n)
{
    for (int i = 0; i < k->m.n_arrays; i++) {
        const struct ckpt_array *x = &k->m.arrays[i];
        bool wanted = strcmp(x->group, group) != 0;
        for (int e = 0; e < n && !wanted; e++)
            wanted = strcmp(expected[e].name, x->name) == 0;
        if (!wanted)
            FAIL(ERR_DATA, "checkpoint %s has %s/%s, which the model does not", k->dir, group,
                 x->name);
    }
    return ERR_OK;
}

int ckpt_match(const struct ckpt *k, const char *group, const struct ckpt_array *expected, int n)
{
    int n_there = 0;
    for (int i = 0; i < n; i++) {
        int at = ckpt_array_find(k, group, expected[i].name);
        if (at < 0)
            return missing(k, group, expected[i].name);
        TRY(match_one(k, &k->m.arrays[at], &expected[i]));
    }
    for (int i = 0; i < k->m.n_arrays; i++)
        n_there += strcmp(k->m.arrays[i].group, group) == 0;
    return n_there > n ? one_too_many(k, group, expected, n) : ERR_OK;
}
