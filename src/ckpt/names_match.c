/* Whether weights are those of a model. */
#include "ckpt/names.h"

#include "base/text.h"
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

static bool matches_one(const struct opt_strs *patterns, const char *name)
{
    for (int i = 0; patterns && i < patterns->n; i++)
        if (fnmatch(patterns->v[i], name, 0) == 0)
            return true;
    return false;
}

static int missing(const struct weights *w, const char *name)
{
    const char **words = calloc((size_t)w->n + 1, sizeof *words);
    for (int i = 0; words && i < w->n; i++)
        words[i] = w->rows[i].x.name;
    const char *near = words ? text_nearest(name, words) : NULL;
    free(words);
    FAIL(ERR_DATA, "%s: %s is missing%s%s%s; init_missing may allow it", w->source->path, name,
         near ? " (the nearest there is " : "", near ? near : "", near ? ")" : "");
}

/* Rows of a matrix that are one a token. */
static bool has_token_rows(const char *name)
{
    static const char *const names[] = {"wte.weight", "embed_tokens.weight", "lm_head.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(name), m = strlen(names[i]);
        if (n >= m && strcmp(name + n - m, names[i]) == 0)
            return true;
    }
    return false;
}

static int check_shape(const struct weights *w, const struct weight *x,
                       const struct tensor_row *row, bool grow_vocab)
{
    const struct shape *a = &x->x.shape, *b = &row->shape;
    char there[64], here[64];
    if (shape_equal(a, b))
        return ERR_OK;
    bool tokens =
        has_token_rows(row->name) && a->n_dims == 2 && b->n_dims == 2 && a->dim[1] == b->dim[1];
    shape_print(a, there, sizeof there);
    shape_print(b, here, sizeof here);
    if (!tokens)
        FAIL(ERR_DATA, "%s: %s is %s, the model's is %s", w->source->path, row->name, there, here);
    if (a->dim[0] > b->dim[0])
        FAIL(ERR_DATA, "%s: %s is %s, the model's is %s: it has more tokens than the model",
             w->source->path, row->name, there, here);
    if (!grow_vocab)
        FAIL(ERR_DATA,
             "%s: %s is %s, the model's is %s: say model.init_grow_vocab = true to begin the other "
             "tokens anew",
             w->source->path, row->name, there, here);
    return ERR_OK;
}

static int check_layout(const struct weights *w, const struct weight *x,
                        const struct tensor_row *row)
{
    const char *layout = x->x.layout;
    if (!layout && x->x.shape.n_dims < 2) /* there is only one */
        return ERR_OK;
    if (!layout)
        FAIL(ERR_DATA, "%s does not say how %s lies (its layout), so it is not loaded",
             w->source->path, row->name);
    if (strcmp(layout, row->layout) != 0)
        FAIL(ERR_DATA, "%s: %s lies %s, the model's lies %s", w->source->path, row->name, layout,
             row->layout);
    return ERR_OK;
}

/* A tied head that is stored too must be what it is tied to. */
static int check_tied(const struct weights *w, int own, int alias)
{
    enum { PIECE = 1 << 16 };
    const struct weight *x = &w->rows[own], *y = &w->rows[alias];
    bool same = shape_equal(&x->x.shape, &y->x.shape) && x->x.dtype == y->x.dtype;
    size_t elem_bytes = dtype_bytes(x->x.dtype);
    int64_t n = shape_elems(&x->x.shape);
    char *a = malloc(2 * PIECE * elem_bytes);
    if (!a)
        FAIL(ERR_RESOURCE, "no memory to compare %s with %s", x->x.name, y->x.name);
    char *b = a + PIECE * elem_bytes;
    int rc = ERR_OK;
    for (int64_t at = 0; at < n && same && rc == ERR_OK; at += PIECE) {
        int64_t end = n - at < PIECE ? n : at + PIECE;
        rc = weights_read(w, own, at, end, a);
        if (rc == ERR_OK)
            rc = weights_read(w, alias, at, end, b);
        same = rc == ERR_OK && memcmp(a, b, (size_t)(end - at) * elem_bytes) == 0;
    }
    free(a);
    TRY(rc);
    if (!same)
        FAIL(ERR_DATA, "%s: %s is not %s, to which the model ties it (tie_word_embeddings)",
             w->source->path, y->x.name, x->x.name);
    return ERR_OK;
}

static int match_row(const struct weights *w, const struct tensor_row *row,
                     const struct weights_rules *rules, bool *used, int *from)
{
    *from = weights_find(w, row->name);
    int alias = row->alias ? weights_find(w, row->alias) : -1;
    if (*from < 0) { /* some files keep a tied matrix under its other name only */
        *from = alias;
        alias = -1;
    }
    if (*from < 0)
        return (rules->begins && (row->flags & TENSOR_ADAPTER)) ||
                       matches_one(rules->may_miss, row->name)
                   ? ERR_OK
                   : missing(w, row->name);
    const struct weight *x = &w->rows[*from];
    used[*from] = true;
    TRY(check_shape(w, x, row, rules->grow_vocab));
    if (strcmp(x->x.name, row->name) == 0)
        TRY(check_layout(w, x, row));
    if (alias < 0)
        return ERR_OK;
    used[alias] = true;
    return check_tied(w, *from, alias);
}

int weights_match(const struct weights *w, const struct tensor_table *t,
                  const struct weights_rules *rules, int *from)
{
    bool *used = calloc((size_t)w->n + 1, sizeof *used);
    if (!used)
        FAIL(ERR_RESOURCE, "no memory to match %d weights", w->n);
    int rc = ERR_OK;
    for (int i = 0; i < t->n_rows && rc == ERR_OK; i++)
        rc = match_row(w, &t->rows[i], rules, used, &from[i]);
    for (int i = 0; i < w->n && rc == ERR_OK; i++)
        if (!used[i] && !matches_one(rules->may_be_left, w->rows[i].x.name))
            rc =
                err_set(ERR_DATA, "%s: %s is no tensor of this model; init_unexpected may allow it",
                        w->source->path, w->rows[i].x.name);
    free(used);
    return rc;
}
