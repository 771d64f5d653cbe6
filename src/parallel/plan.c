/* Units, flat ranges, cuts, and the dry run that measures activations. */
#include "parallel/plan.h"

#include "parallel/wrap.h"
#include <stdlib.h>
#include <string.h>

static int64_t pad(int64_t n)
{
    return (n + BLOCK_ELEMS - 1) / BLOCK_ELEMS * BLOCK_ELEMS;
}

static void lay_out(struct plan *p, const struct model *m, const struct cut_tree *c,
                    struct arena *a)
{
    const struct tensor_table *t = &m->table;
    for (int u = 0; u < p->n_units; u++) {
        struct plan_unit *unit = &p->unit[u];
        int *row = arena_alloc(a, sizeof *row * (size_t)(t->n_rows + 1));
        *unit = (struct plan_unit){.module = c->unit_module[u],
                                   .row = row,
                                   .begin = p->n_elem,
                                   .encloses = c->encloses[u],
                                   .early_grad = c->early_grad[u]};
        for (int r = 0; r < t->n_rows; r++) {
            if (c->unit_of[r] != u)
                continue;
            row[unit->n_rows++] = r;
            p->place[r] = (struct plan_place){.unit = u, .begin = p->n_elem};
            p->n_elem += pad(shape_elems(&t->rows[r].shape));
        }
        unit->n_elem = p->n_elem - unit->begin;
        int64_t *cut = arena_alloc(a, sizeof *cut * (size_t)(p->size + 1));
        for (int r = 0; r <= p->size; r++)
            cut[r] = unit->n_elem / BLOCK_ELEMS * r / p->size * BLOCK_ELEMS;
        unit->cut = cut;
    }
}

struct plan *plan_make(const struct model *m, const struct policy *policy, const struct wrap *wrap,
                       int size, struct arena *a)
{
    struct cut_tree c;
    wrap_cut(m, wrap, a, &c);
    struct plan *p = arena_alloc(a, sizeof *p);
    *p = (struct plan){
        .policy = policy, .size = size, .n_units = c.n_units, .n_rows = m->table.n_rows};
    p->unit = arena_alloc(a, sizeof *p->unit * (size_t)p->n_units);
    p->place = arena_alloc(a, sizeof *p->place * (size_t)(p->n_rows + 1));
    p->n_params = tensor_table_elems(&m->table);
    lay_out(p, m, &c, a);
    return p;
}

static int64_t nested(const struct plan *p, const struct module *m, bool all)
{
    int64_t own = 0, inside = 0;
    for (int u = 0; u < p->n_units; u++)
        if (p->unit[u].module == m)
            own = p->unit[u].n_elem;
    for (int i = 0; i < m->n_children; i++) {
        int64_t n = nested(p, m->children[i], all);
        inside = all ? inside + n : n > inside ? n : inside;
    }
    return own + inside;
}

int64_t plan_nested_elems(const struct plan *p, const struct model *m, bool all)
{
    return nested(p, m->root, all);
}

/* Addresses that nobody may touch, so that layers see a gradient where there will be one. */
static void **fake_pointers(int n)
{
    void **p = malloc(sizeof *p * (size_t)(n + 1));
    if (!p)
        FATAL("out of memory for a dry run");
    for (int i = 0; i < n; i++)
        p[i] = (void *)(uintptr_t)STACK_ALIGN;
    return p;
}

void plan_measure(const struct model *m, const struct device *dev, const struct plan_case *c,
                  struct plan_memory *out)
{
    enum { FRAME_BYTES = 1 << 22 };
    struct stack tape, frames;
    struct device same = *dev; /* a stream may change its device, a dry run changes nothing */
    struct stream s = {.dev = &same, .k = device_null_kernels(dev, c->compute)};
    void *room = malloc(FRAME_BYTES);
    if (!room)
        FATAL("out of memory for a dry run");
    stack_init_counting(&tape);
    stack_init_counting(&s.scratch);
    stack_init(&frames, room, FRAME_BYTES);
    void **weight = fake_pointers(m->table.n_rows);
    float **grad = (float **)fake_pointers(m->table.n_rows);
    const struct batch batch = {.B = c->B, .T = c->T};
    double loss = 0;
    struct pass p = {
        .s = &s,
        .tape = &tape,
        .frames = &frames,
        .compute = c->compute,
        .training = c->kind == PASS_TRAIN,
        .dry = true,
        .weight = weight,
        .grad = grad,
        .batch = &batch,
        .loss_scale = 1,
        .loss_sum = &loss,
        .logits = c->kind == PASS_LOGITS ? (void *)(uintptr_t)STACK_ALIGN : NULL,
        .last_only = true,
    };
    module_forward(m->root, &p, NULL, NULL);
    if (c->kind == PASS_TRAIN)
        module_backward(m->root, &p, NULL, NULL);
    *out = (struct plan_memory){tape.peak, frames.peak, s.scratch.peak};
    free(weight);
    free(grad);
    free(room);
}

void plan_own_part(const struct plan *p, const struct model *m, int row, int rank, int64_t *begin,
                   int64_t *end)
{
    const struct plan_place *at = &p->place[row];
    const struct plan_unit *u = &p->unit[at->unit];
    int64_t n = shape_elems(&m->table.rows[row].shape), first = at->begin - u->begin;
    int64_t lo = u->cut[rank] - first, hi = u->cut[rank + 1] - first;
    *begin = lo < 0 ? 0 : lo > n ? n : lo;
    *end = hi < *begin ? *begin : hi > n ? n : hi;
}

int64_t plan_own_elems(const struct plan *p, int rank)
{
    int64_t n = 0;
    for (int u = 0; u < p->n_units; u++)
        n += p->unit[u].cut[rank + 1] - p->unit[u].cut[rank];
    return n;
}
