/* Which datasets a file gets and where in them each part of an array lies.  Pure. */
#include "ckpt/ckpt_impl.h"

#include <stdlib.h>
#include <string.h>

const char *const ckpt_type_words[] = {"FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT",
                                       NULL};

const char *place_name(enum ckpt_type type, int shard, int n_shards, struct arena *a)
{
    return type == CKPT_FULL ? "full.h5"
                             : arena_printf(a, "shard-%05d-of-%05d.h5", shard, n_shards);
}

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    if (x->array != y->array)
        return x->array < y->array ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Those of pieces that go to shard, behind the n parts that there are.  Returns how many then. */
static int take(const struct ckpt_piece *pieces, int n_pieces, int shard, struct placed *part,
                int n)
{
    for (int i = 0; i < n_pieces; i++) {
        const struct ckpt_piece *x = &pieces[i];
        if (x->shard == shard && x->begin < x->end)
            part[n++] = (struct placed){.array = x->array, .begin = x->begin, .end = x->end};
    }
    return n;
}

/* The pieces of one shard in order; what touches is joined, since one dataset will hold it. */
static int collect(const struct ckpt_save *s, int shard, struct arena *a, struct placement *p)
{
    int n_others = s->shared ? s->shared->n_others : 0;
    p->part = arena_alloc(a, ((size_t)s->n_pieces + (size_t)n_others + 1) * sizeof *p->part);
    int n = take(s->pieces, s->n_pieces, shard, p->part, 0);
    if (n_others > 0)
        n = take(s->shared->others, n_others, shard, p->part, n);
    qsort(p->part, (size_t)n, sizeof *p->part, by_place);
    for (int i = 0; i < n; i++) {
        struct placed *last = p->n_parts ? &p->part[p->n_parts - 1] : NULL;
        const struct placed *x = &p->part[i];
        if (last && last->array == x->array && last->end > x->begin)
            FAIL(ERR_INTERNAL, "%s/%s: element %lld is saved twice", s->arrays[x->array].group,
                 s->arrays[x->array].name, (long long)x->begin);
        if (last && last->array == x->array && last->end == x->begin)
            last->end = x->end;
        else
            p->part[p->n_parts++] = *x;
    }
    return ERR_OK;
}

static void place_full(const struct ckpt_save *s, struct arena *a, struct placement *p)
{
    size_t n = (size_t)s->n_arrays;
    p->set = arena_alloc(a, (n + 1) * sizeof *p->set);
    p->part = arena_alloc(a, (n + 1) * sizeof *p->part);
    for (int i = 0; i < s->n_arrays; i++) {
        const struct ckpt_array *x = &s->arrays[i];
        p->set[i] = (struct dataset){x->group, x->name, x->dtype, x->shape, x, -1, 0};
        p->part[i] = (struct placed){i, i, 0, shape_elems(&x->shape), 0};
    }
    p->n_sets = p->n_parts = s->n_arrays;
}

/* A dataset a part, under the array's name; the name of a second part of it says its begin. */
static void place_sharded(const struct ckpt_save *s, struct arena *a, struct placement *p)
{
    p->set = arena_alloc(a, ((size_t)p->n_parts + 1) * sizeof *p->set);
    for (int i = 0; i < p->n_parts; i++) {
        struct placed *x = &p->part[i];
        const struct ckpt_array *of = &s->arrays[x->array];
        bool again = i > 0 && p->part[i - 1].array == x->array;
        bool whole = x->end - x->begin == shape_elems(&of->shape);
        x->dataset = i;
        p->set[i] = (struct dataset){
            .group = of->group,
            .name = again ? arena_printf(a, "%s@%lld", of->name, (long long)x->begin) : of->name,
            .dtype = of->dtype,
            .shape = whole ? of->shape : shape_make(1, x->end - x->begin, 0),
            .of = of,
            .begin = whole ? -1 : x->begin};
    }
    p->n_sets = p->n_parts;
}

/* A dataset a group and dtype; parts one behind another, each at a whole block, as they lie in the
 * shard's memory. */
static void place_local(const struct ckpt_save *s, struct arena *a, struct placement *p)
{
    p->set = arena_alloc(a, ((size_t)p->n_parts + 1) * sizeof *p->set);
    for (int i = 0; i < p->n_parts; i++) {
        struct placed *x = &p->part[i];
        const struct ckpt_array *of = &s->arrays[x->array];
        const char *group = arena_printf(a, "local/%s", of->group);
        int k = 0;
        while (k < p->n_sets &&
               (p->set[k].dtype != of->dtype || strcmp(p->set[k].group, group) != 0))
            k++;
        struct dataset *d = &p->set[k];
        if (k == p->n_sets) {
            p->n_sets++;
            *d = (struct dataset){
                group, dtype_name(of->dtype), of->dtype, shape_make(1, 0, 0), NULL, -1, 0};
        }
        int64_t n = d->shape.dim[0];
        x->dataset = k;
        x->at = (n + BLOCK_ELEMS - 1) / BLOCK_ELEMS * BLOCK_ELEMS;
        d->shape.dim[0] = x->at + x->end - x->begin;
    }
}

int place_make(const struct ckpt_save *s, int shard, struct arena *a, struct placement *p)
{
    *p = (struct placement){0};
    if (s->type == CKPT_FULL) {
        place_full(s, a, p);
        return ERR_OK;
    }
    TRY(collect(s, shard, a, p));
    if (s->type == CKPT_SHARDED)
        place_sharded(s, a, p);
    else
        place_local(s, a, p);
    return ERR_OK;
}

int64_t place_offset(const struct placement *p, int array, int64_t begin)
{
    int low = 0, high = p->n_parts; /* the last part that does not begin behind it */
    while (low < high) {
        int mid = low + (high - low) / 2;
        const struct placed *x = &p->part[mid];
        if (x->array < array || (x->array == array && x->begin <= begin))
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0 || p->part[low - 1].array != array || p->part[low - 1].end <= begin)
        return -1;
    const struct placed *x = &p->part[low - 1];
    const struct dataset *d = &p->set[x->dataset];
    return d->offset + (x->at + begin - x->begin) * (int64_t)dtype_bytes(d->dtype);
}
