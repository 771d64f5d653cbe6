/* dtype, shape and tensor table. */
#include "tensor/tensor.h"

#include "base/text.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_F32] = {"float32", 4}, [DTYPE_F64] = {"float64", 8}, [DTYPE_BF16] = {"bfloat16", 2},
    [DTYPE_F16] = {"float16", 2}, [DTYPE_I32] = {"int32", 4},   [DTYPE_I64] = {"int64", 8},
};

const char *dtype_name(enum dtype t)
{
    return dtypes[t].name;
}

size_t dtype_bytes(enum dtype t)
{
    return dtypes[t].n_bytes;
}

int dtype_parse(const char *name, enum dtype *t)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (text_same(name, dtypes[i].name)) {
            *t = (enum dtype)i;
            return ERR_OK;
        }
    FAIL(ERR_DATA, "unknown dtype \"%s\"", name);
}

struct shape shape_make(int n_dims, int64_t d0, int64_t d1)
{
    return (struct shape){.n_dims = n_dims, .dim = {d0, d1}};
}

int64_t shape_elems(const struct shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n_dims; i++)
        n *= s->dim[i];
    return n;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->n_dims != b->n_dims)
        return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

const char *shape_print(const struct shape *s, char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < s->n_dims && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%lld", i ? ", " : "(", (long long)s->dim[i]);
    if (at < cap)
        snprintf(buf + at, cap - at, s->n_dims ? ")" : "()");
    return buf;
}

int tensor_add(struct tensor_table *t, const struct tensor_row *row)
{
    if (t->n_rows == t->cap) {
        int cap = t->cap ? 2 * t->cap : 32;
        struct tensor_row *rows = arena_alloc(t->arena, (size_t)cap * sizeof *rows);
        if (t->n_rows)
            memcpy(rows, t->rows, (size_t)t->n_rows * sizeof *rows);
        t->rows = rows;
        t->cap = cap;
    }
    struct tensor_row *r = &t->rows[t->n_rows];
    *r = *row;
    r->name = arena_strdup(t->arena, row->name);
    if (row->alias)
        r->alias = arena_strdup(t->arena, row->alias);
    return t->n_rows++;
}

int tensor_find(const struct tensor_table *t, const char *name)
{
    for (int i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].name, name) == 0 ||
            (t->rows[i].alias && strcmp(t->rows[i].alias, name) == 0))
            return i;
    return -1;
}

int64_t tensor_table_elems(const struct tensor_table *t)
{
    int64_t n = 0;
    for (int i = 0; i < t->n_rows; i++)
        n += shape_elems(&t->rows[i].shape);
    return n;
}
