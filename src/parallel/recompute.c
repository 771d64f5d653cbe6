/* Choosing the modules that run forward again in backward. */
#include "parallel/recompute.h"

#include "parallel/plan.h"
#include "parallel/wrap.h"

struct marker {
    const struct model *m;
    const struct recompute *r;
    int64_t every, seen;
    int n;
    const struct module *bad;
};

static bool is_wanted(const struct marker *k, const char *cls)
{
    const char *block = k->m->family->block_cls;
    if (!k->r->classes)
        return block && text_same(cls, block);
    for (const char *const *w = k->r->classes; *w; w++)
        if (text_same(wrap_own_name(k->m, *w), cls))
            return true;
    return false;
}

/* What runs again needs an input that stays, and a forward that only makes an output. */
static bool can_run_again(const struct model *m, const struct module *x)
{
    return x != m->root && !x->ops->loss_head && !x->ops->forward_residual && x->n_in > 0;
}

static void mark(struct module *x, void *arg)
{
    struct marker *k = arg;
    x->recompute = false;
    if (!k->r->on || !is_wanted(k, x->ops->cls))
        return;
    if (!can_run_again(k->m, x))
        k->bad = x;
    x->recompute = k->seen++ % k->every == 0;
    k->n += x->recompute;
}

int recompute_mark(const struct model *m, const struct recompute *r, int *n)
{
    struct marker k = {.m = m, .r = r, .every = r->every};
    struct text t = {0};
    int rc = ERR_OK;
    for (const char *const *w = r->on ? r->classes : NULL; w && *w; w++) {
        if (plan_has_class(m, *w))
            continue;
        plan_print_classes(m, &t);
        rc = err_set(ERR_USAGE, "the model has no class %s; its classes are %s", *w, t.s);
        text_clear(&t);
        return rc;
    }
    module_walk(m->root, mark, &k);
    if (r->number > 0 && k.seen > 0) { /* they are counted now */
        k = (struct marker){.m = m, .r = r, .every = (k.seen + r->number - 1) / r->number};
        module_walk(m->root, mark, &k);
    }
    *n = k.n;
    if (k.bad)
        FAIL(ERR_USAGE,
             "%s keeps no more than its input, or has none that stays: there is nothing "
             "to run again",
             k.bad->ops->cls);
    return ERR_OK;
}
