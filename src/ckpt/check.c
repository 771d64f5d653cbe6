/* What may be saved: names, shapes, pieces, and the proof that the pieces of all ranks cover every
 * array exactly once. */
#include "ckpt/ckpt_impl.h"

#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 255 };

/* One part of a path inside the file: no way out of its group, and no slash. */
static bool part_ok(const char *s, size_t n)
{
    return n > 0 && !(n == 1 && s[0] == '.') && !(n == 2 && s[0] == '.' && s[1] == '.') &&
           !memchr(s, '/', n);
}

static bool group_ok(const char *group)
{
    if (strlen(group) > NAME_MAX_BYTES)
        return false;
    for (const char *p = group;; p++) {
        size_t n = strcspn(p, "/");
        if (!part_ok(p, n))
            return false;
        p += n;
        if (!*p)
            return true;
    }
}

int64_t array_bytes(const struct ckpt_array *x)
{
    return shape_elems(&x->shape) * (int64_t)dtype_bytes(x->dtype);
}

int array_check(const struct ckpt_array *x, int code)
{
    if (!group_ok(x->group))
        FAIL(code, "\"%.300s\" is no name for a group of arrays", x->group);
    if (strlen(x->name) > NAME_MAX_BYTES || !part_ok(x->name, strlen(x->name)))
        FAIL(code, "\"%.300s\" is no name for an array in %s", x->name, x->group);
    if (x->shape.n_dims < 0 || x->shape.n_dims > SHAPE_MAX_DIMS)
        FAIL(code, "%s/%s has %d dimensions; 0 to %d are possible", x->group, x->name,
             x->shape.n_dims, SHAPE_MAX_DIMS);
    int64_t n_bytes = (int64_t)dtype_bytes(x->dtype);
    for (int i = 0; i < x->shape.n_dims; i++)
        if (x->shape.dim[i] < 1 || __builtin_mul_overflow(n_bytes, x->shape.dim[i], &n_bytes))
            FAIL(code, "%s/%s: dimension %d is %lld, which is none or beyond 64 bits in bytes",
                 x->group, x->name, i, (long long)x->shape.dim[i]);
    return ERR_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct ckpt_array *const *x = a, *const *y = b;
    int d = strcmp((*x)->group, (*y)->group);
    return d ? d : strcmp((*x)->name, (*y)->name);
}

int arrays_sort(const struct ckpt_array *arrays, int n, struct arena *a, int code,
                const struct ckpt_array ***sorted)
{
    const struct ckpt_array **p = arena_alloc(a, ((size_t)n + 1) * sizeof(void *));
    for (int i = 0; i < n; i++)
        p[i] = &arrays[i];
    qsort(p, (size_t)n, sizeof(void *), by_name);
    for (int i = 1; i < n; i++)
        if (by_name(&p[i - 1], &p[i]) == 0)
            FAIL(code, "two arrays are called %s/%s", p[i]->group, p[i]->name);
    *sorted = p;
    return ERR_OK;
}

/* Behind one bracket, because that is how deep it stands in the manifest. */
static int meta_check(const char *meta, struct arena *a)
{
    const struct json *j;
    const char *text = arena_printf(a, "[%s]", meta ? meta : "");
    if (json_parse(text, strlen(text), a, &j) != ERR_OK || j->n_children != 1 ||
        j->child->type != JSON_OBJECT)
        FAIL(ERR_INTERNAL, "the state to save is no JSON object: %.60s", text);
    return ERR_OK;
}

int save_check(const struct ckpt_save *s, const struct comm *c, struct arena *a)
{
    const struct ckpt_array **sorted;
    if (s->step < 0 || s->keep < 0 || s->keep_every < 0 || s->n_arrays < 1)
        FAIL(ERR_INTERNAL, "a checkpoint of step %lld, keep %lld, %d arrays", (long long)s->step,
             (long long)s->keep, s->n_arrays);
    if (s->shared && s->type != CKPT_SHARDED)
        FAIL(ERR_INTERNAL, "%s has no files that ranks share", ckpt_type_words[s->type]);
    if (s->type != CKPT_FULL && (s->n_shards < 1 || s->n_shards > 99999))
        FAIL(ERR_INTERNAL, "a checkpoint of %d shards", s->n_shards);
    if (!s->output_dir || !*s->output_dir || !s->run_id || !*s->run_id)
        FAIL(ERR_INTERNAL, "a checkpoint without a folder or a run");
    for (int i = 0; i < s->n_arrays; i++)
        TRY(array_check(&s->arrays[i], ERR_INTERNAL));
    TRY(arrays_sort(s->arrays, s->n_arrays, a, ERR_INTERNAL, &sorted));
    for (int i = 0; i < s->n_pieces; i++) {
        const struct ckpt_piece *p = &s->pieces[i];
        if (p->array < 0 || p->array >= s->n_arrays)
            FAIL(ERR_INTERNAL, "piece %d is of array %d of %d", i, p->array, s->n_arrays);
        const struct ckpt_array *x = &s->arrays[p->array];
        if (p->begin < 0 || p->end < p->begin || p->end > shape_elems(&x->shape))
            FAIL(ERR_INTERNAL, "a piece [%lld, %lld) of %s/%s, which has %lld elements",
                 (long long)p->begin, (long long)p->end, x->group, x->name,
                 (long long)shape_elems(&x->shape));
        bool full = s->type == CKPT_FULL;
        bool own = s->shared ? p->shard == s->shared->file : p->shard % c->size == c->rank;
        if (p->shard < 0 || p->shard >= (full ? 1 : s->n_shards) || !(full || own))
            FAIL(ERR_INTERNAL, "a piece of %s/%s for shard %d of %d on rank %d of %d", x->group,
                 x->name, p->shard, s->n_shards, c->rank, c->size);
        if (!p->values && !s->fetch && p->begin < p->end)
            FAIL(ERR_INTERNAL, "a piece of %s/%s without values", x->group, x->name);
    }
    return c->rank == 0 ? meta_check(s->meta, a) : ERR_OK;
}

static uint64_t mix_text(uint64_t h, const char *s)
{
    return s ? hash64(s, strlen(s) + 1, h) : hash64("", 0, h);
}

static uint64_t mix_i64(uint64_t h, int64_t v)
{
    return hash64(&v, sizeof v, h);
}

uint64_t save_hash(const struct ckpt_save *s)
{
    uint64_t h = mix_text(mix_i64(mix_i64(0, s->step), s->n_arrays), s->output_dir);
    h = mix_i64(mix_i64(h, s->type), s->type == CKPT_FULL ? 1 : s->n_shards);
    for (int i = 0; i < s->n_arrays; i++) {
        const struct ckpt_array *x = &s->arrays[i];
        h = mix_text(mix_text(mix_text(mix_text(h, x->group), x->name), x->layout), x->alias);
        h = mix_i64(mix_i64(h, x->dtype), x->shape.n_dims);
        for (int d = 0; d < x->shape.n_dims; d++)
            h = mix_i64(h, x->shape.dim[d]);
    }
    return h;
}

static int by_place(const void *a, const void *b)
{
    const struct ckpt_range *x = a, *y = b;
    if (x->array != y->array)
        return x->array < y->array ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

int cover_check(const struct ckpt_save *s, struct ckpt_range *ranges, int64_t n_ranges,
                int64_t *first_range)
{
    qsort(ranges, (size_t)n_ranges, sizeof *ranges, by_place);
    int64_t r = 0;
    for (int i = 0; i < s->n_arrays; i++) {
        const struct ckpt_array *x = &s->arrays[i];
        int64_t at = 0;
        first_range[i] = r;
        for (; r < n_ranges && ranges[r].array == i && ranges[r].begin == at; r++)
            at = ranges[r].end;
        if (r < n_ranges && ranges[r].array == i && ranges[r].begin < at)
            FAIL(ERR_INTERNAL, "%s/%s: element %lld is saved twice", x->group, x->name,
                 (long long)ranges[r].begin);
        if (at != shape_elems(&x->shape))
            FAIL(ERR_INTERNAL, "%s/%s: no rank saves element %lld", x->group, x->name,
                 (long long)at);
    }
    first_range[s->n_arrays] = r;
    return ERR_OK;
}
