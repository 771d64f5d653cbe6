/* Wrap policies: by the family's block, by class names, by size, or none. */
#include "parallel/wrap.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

struct cutter {
    const struct model *m;
    const struct wrap *wrap;
    struct module **wrapped; /* modules that become units, the root apart */
    int n_wrapped;
    struct cut_tree *out;
};

const char *wrap_own_name(const struct model *m, const char *cls)
{
    for (const char *const *w = m->family->aliases; w && w[0]; w += 2)
        if (text_same(w[0], cls))
            return w[1];
    return cls;
}

static bool is_wanted(const struct cutter *c, const char *cls)
{
    if (c->wrap->kind == WRAP_BLOCKS)
        return c->m->family->block_cls && text_same(cls, c->m->family->block_cls);
    if (c->wrap->kind != WRAP_CLASSES)
        return false;
    for (const char *const *w = c->wrap->classes; *w; w++)
        if (text_same(wrap_own_name(c->m, *w), cls))
            return true;
    return false;
}

static int64_t own_params(const struct model *m, const struct module *x)
{
    int64_t n = 0;
    for (int i = 0; i < x->n_rows; i++)
        if (!m->table.rows[x->first_row + i].alias)
            n += shape_elems(&m->table.rows[x->first_row + i].shape);
    return n;
}

/* Inner modules first: what is wrapped no longer counts towards its parents.  Returns the rest. */
static int64_t choose(struct cutter *c, struct module *x)
{
    int64_t rest = own_params(c->m, x);
    for (int i = 0; i < x->n_children; i++)
        rest += choose(c, x->children[i]);
    bool large = c->wrap->kind == WRAP_SIZE && rest >= c->wrap->min_params && rest > 0;
    if (x == c->m->root || !(large || is_wanted(c, x->ops->cls)))
        return rest;
    c->wrapped[c->n_wrapped++] = x;
    return 0;
}

static bool is_wrapped(const struct cutter *c, const struct module *x)
{
    for (int i = 0; i < c->n_wrapped; i++)
        if (c->wrapped[i] == x)
            return true;
    return false;
}

static void assign(struct cutter *c, struct module *x, int unit)
{
    struct cut_tree *o = c->out;
    if (x == c->m->root || is_wrapped(c, x)) {
        if (unit >= 0)
            o->encloses[unit] = true;
        unit = o->n_units++;
        o->unit_module[unit] = x;
    }
    for (int i = 0; i < x->n_rows; i++) {
        int row = x->first_row + i;
        o->unit_of[row] = c->m->table.rows[row].alias ? 0 : unit;
    }
    if (x->ops->loss_head)
        o->early_grad[unit] = true;
    for (int i = 0; i < x->n_children; i++)
        assign(c, x->children[i], unit);
}

static void count_module(struct module *x, void *arg)
{
    (void)x;
    ++*(size_t *)arg;
}

struct apart {
    struct cutter *c;
    const regex_t *ignored; /* NULL: none */
    int unit;
    int64_t total;
};

/* Whether the regular expression is the whole path of the tensor's module, or of one around it. */
static bool is_ignored(const regex_t *ignored, const char *tensor)
{
    char path[512];
    regmatch_t all;
    snprintf(path, sizeof path, "%s", tensor);
    for (char *end = strrchr(path, '.'); ignored && end; end = strrchr(path, '.')) {
        *end = 0;
        if (regexec(ignored, path, 1, &all, 0) == 0 && all.rm_so == 0 && path[all.rm_eo] == 0)
            return true;
    }
    return false;
}

/* Rows first … first + n - 1 of a module, together. */
static void set_rows_apart(struct apart *t, int first, int n)
{
    bool small = true, ignored = false;
    int64_t sum = 0;
    for (int i = first; i < first + n; i++) {
        const struct tensor_row *r = &t->c->m->table.rows[i];
        int64_t n_elem = shape_elems(&r->shape);
        sum += n_elem;
        small = small && n_elem <= t->c->wrap->persist_elems;
        ignored = ignored || is_ignored(t->ignored, r->name);
    }
    if (!ignored && !(small && t->total + sum <= t->c->wrap->persist_total))
        return;
    t->total += sum;
    for (int i = first; i < first + n; i++)
        t->c->out->unit_of[i] = t->unit;
}

/* Several matrices of one Linear are one product, which needs them side by side. */
static void set_module_apart(struct module *x, void *arg)
{
    struct apart *t = arg;
    bool together = text_same(x->ops->cls, "Linear") && x->n_rows > 1 &&
                    t->c->m->table.rows[x->first_row + 1].shape.n_dims > 1;
    for (int i = 0; i < x->n_rows; i += together ? x->n_rows : 1)
        set_rows_apart(t, x->first_row + i, together ? x->n_rows : 1);
}

/* Small tensors leave their units for one of their own, first come, first served, and so do those
 * of modules that are to be left alone. */
static void set_apart(struct cutter *c)
{
    struct cut_tree *o = c->out;
    regex_t ignored;
    struct apart t = {.c = c, .unit = o->n_units};
    bool some = c->wrap->ignored && regcomp(&ignored, c->wrap->ignored, REG_EXTENDED) == 0;
    if (some)
        t.ignored = &ignored;
    module_walk(c->m->root, set_module_apart, &t);
    if (some)
        regfree(&ignored);
    if (t.total == 0)
        return;
    o->persistent = o->n_units++;
    o->unit_module[t.unit] = c->m->root;
    o->early_grad[t.unit] = true;
}

int plan_count_ignored(const struct model *m, const char *pattern)
{
    regex_t ignored;
    int n = 0;
    if (regcomp(&ignored, pattern, REG_EXTENDED) != 0)
        return -1;
    for (int r = 0; r < m->table.n_rows; r++)
        n += is_ignored(&ignored, m->table.rows[r].name);
    regfree(&ignored);
    return n;
}

void wrap_cut(const struct model *m, const struct wrap *wrap, bool sharded, struct arena *a,
              struct cut_tree *out)
{
    size_t n = 0;
    module_walk(m->root, count_module, &n);
    struct cutter c = {.m = m, .wrap = wrap, .out = out};
    *out = (struct cut_tree){.persistent = -1};
    n++; /* and the persistent one */
    c.wrapped = arena_alloc(a, sizeof *c.wrapped * n);
    out->unit_module = arena_alloc(a, sizeof *out->unit_module * n);
    out->encloses = arena_alloc(a, sizeof *out->encloses * n);
    out->early_grad = arena_alloc(a, sizeof *out->early_grad * n);
    out->unit_of = arena_alloc(a, sizeof *out->unit_of * (size_t)(m->table.n_rows + 1));
    choose(&c, m->root);
    assign(&c, m->root, -1);
    /* a tied tensor's gradient begins in the head, wherever that is */
    for (int r = 0; r < m->table.n_rows; r++)
        if (m->table.rows[r].alias)
            out->early_grad[0] = true;
    if (sharded)
        set_apart(&c);
}

struct class_search {
    const char *cls;
    bool found;
};

static void look(struct module *x, void *arg)
{
    struct class_search *s = arg;
    s->found |= text_same(x->ops->cls, s->cls);
}

bool plan_has_class(const struct model *m, const char *cls)
{
    struct class_search s = {.cls = wrap_own_name(m, cls)};
    module_walk(m->root, look, &s);
    return s.found;
}

static void name_class(struct module *x, void *arg)
{
    struct text *t = arg;
    char word[64];
    snprintf(word, sizeof word, "%s", x->ops->cls);
    if (t->s && strstr(t->s, word)) /* an inner word of a longer one is still worth one mention */
        return;
    text_printf(t, "%s%s", t->n_bytes ? ", " : "", word);
}

void plan_print_classes(const struct model *m, struct text *out)
{
    struct text t = {0};
    module_walk(m->root, name_class, &t);
    text_printf(out, "%s", t.s ? t.s : "");
    text_clear(&t);
}
