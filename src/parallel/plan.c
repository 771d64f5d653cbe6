/* Units, flat ranges, cuts, and the dry run that measures activations. */
#include "parallel/plan.h"

#include "base/hash.h"
#include "parallel/wrap.h"
#include <stdlib.h>
#include <string.h>

static int64_t pad(int64_t n)
{
    return (n + BLOCK_ELEMS - 1) / BLOCK_ELEMS * BLOCK_ELEMS;
}

static bool is_frozen(const struct model *m, int row)
{
    return m->table.rows[row].flags & TENSOR_FROZEN;
}

/* A unit of the rows of the tree's unit u that are frozen, or of those that are not. */
static void add_unit(struct plan *p, const struct model *m, const struct cut_tree *c, int u,
                     bool frozen, struct arena *a)
{
    int *row = arena_alloc(a, sizeof *row * (size_t)(p->n_rows + 1)), n = 0, n_others = 0;
    struct plan_unit *unit = &p->unit[p->n_units];
    for (int r = 0; r < p->n_rows; r++) {
        if (c->unit_of[r] != u)
            continue;
        if (is_frozen(m, r) == frozen)
            row[n++] = r;
        else
            n_others++;
    }
    if (n == 0 && (frozen || n_others > 0))
        return;
    *unit = (struct plan_unit){.module = c->unit_module[u],
                               .row = row,
                               .n_rows = n,
                               .encloses = c->encloses[u],
                               .persists = u == c->persistent,
                               .early_grad = c->early_grad[u],
                               .frozen = frozen};
    for (int i = 0; i < n; i++) {
        p->place[row[i]] = (struct plan_place){.unit = p->n_units, .begin = unit->n_elem};
        unit->n_elem += pad(shape_elems(&m->table.rows[row[i]].shape));
    }
    int64_t *cut = arena_alloc(a, sizeof *cut * (size_t)(p->size + 1));
    for (int r = 0; r <= p->size; r++)
        cut[r] = unit->n_elem / BLOCK_ELEMS * r / p->size * BLOCK_ELEMS;
    unit->cut = cut;
    p->n_units++;
}

/* Frozen units lie behind the others, so that places in arrays of gradients and moments are those
 * in arrays of weights. */
static void lay_out(struct plan *p, const struct model *m, const struct cut_tree *c,
                    struct arena *a)
{
    for (int u = 0; u < c->n_units; u++) {
        add_unit(p, m, c, u, false, a);
        add_unit(p, m, c, u, true, a);
    }
    for (int frozen = 0; frozen <= 1; frozen++) {
        for (int u = 0; u < p->n_units; u++)
            if (p->unit[u].frozen == frozen) {
                p->unit[u].begin = p->n_elem;
                p->n_elem += p->unit[u].n_elem;
            }
        if (!frozen)
            p->n_train = p->n_elem;
    }
    int *trained = arena_alloc(a, sizeof *trained * (size_t)(p->n_rows + 1));
    for (int r = 0; r < p->n_rows; r++) {
        p->place[r].begin += p->unit[p->place[r].unit].begin;
        if (is_frozen(m, r))
            continue;
        trained[p->n_trained++] = r;
        p->n_train_params += shape_elems(&m->table.rows[r].shape);
    }
    p->trained = trained;
}

/* A unit stays whole from forward to backward where that is the strategy's way, where others lie
 * inside it, and where its parameters are needed again soon: between the two uses come the units
 * behind it, twice.  Those nearest to the loss first, while there is room.  What has no backward is
 * done with after forward. */
static void choose_kept(struct plan *p, const struct wrap *w)
{
    int64_t between = 0, live = 0;
    for (int u = 0; u < p->n_units; u++) {
        struct plan_unit *x = &p->unit[u];
        x->keep = !x->module->still && (p->policy->keep_after_forward || x->encloses);
        live += x->encloses || x->persists ? x->n_elem : 0;
    }
    for (int u = p->n_units - 1; u >= 0; u--) {
        struct plan_unit *x = &p->unit[u];
        if (x->encloses || x->persists || x->module->still)
            continue;
        if (u == p->n_units - 1 || p->unit[u + 1].module != x->module) {
            int64_t both = x->n_elem; /* with what is frozen of it, which comes and goes along */
            if (u > 0 && p->unit[u - 1].module == x->module)
                both += p->unit[u - 1].n_elem;
            live += both;
            x->keep |= between < w->reuse_elems && live <= w->live_elems;
            between += 2 * both;
        } else {
            x->keep = p->unit[u + 1].keep;
        }
    }
}

struct plan *plan_make(const struct model *m, const struct policy *policy, const struct wrap *wrap,
                       int size, struct arena *a)
{
    struct cut_tree c;
    wrap_cut(m, wrap, policy->shard_params, a, &c);
    struct plan *p = arena_alloc(a, sizeof *p);
    *p = (struct plan){.policy = policy, .size = size, .n_rows = m->table.n_rows};
    p->unit = arena_alloc(a, sizeof *p->unit * 2 * (size_t)c.n_units);
    p->place = arena_alloc(a, sizeof *p->place * (size_t)(p->n_rows + 1));
    p->n_params = tensor_table_elems(&m->table);
    lay_out(p, m, &c, a);
    choose_kept(p, wrap);
    return p;
}

struct width {
    const struct model *m;
    int64_t widest;
};

static void find_width(struct module *x, void *arg)
{
    struct width *w = arg;
    if (text_same(x->ops->cls, w->m->family->block_cls) && x->n_out > w->widest)
        w->widest = x->n_out;
}

int64_t plan_width(const struct model *m)
{
    struct width w = {.m = m, .widest = 1};
    module_walk(m->root, find_width, &w);
    return w.widest;
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
    plan_measure_split(m, dev, c, SIZE_MAX / 2 / STACK_ALIGN * STACK_ALIGN, NULL, out);
}

void plan_measure_split(const struct model *m, const struct device *dev, const struct plan_case *c,
                        size_t split, int64_t *reach, struct plan_memory *out)
{
    enum { FRAME_BYTES = 1 << 22 };
    struct stack tape, frames;
    struct device same = *dev; /* a stream may change its device, a dry run changes nothing */
    struct stream s = {.dev = &same, .k = device_null_kernels(dev, c->compute)};
    void *room = malloc(FRAME_BYTES);
    if (!room)
        FATAL("out of memory for a dry run");
    stack_init_counting(&tape);
    stack_extend(&tape, split, NULL, SIZE_MAX / 2 - split);
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
        .reach = reach,
        .n_reach = m->table.n_rows,
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

int64_t plan_own_train(const struct plan *p, int rank)
{
    int64_t n = 0;
    for (int u = 0; u < p->n_units; u++)
        if (!p->unit[u].frozen)
            n += p->unit[u].cut[rank + 1] - p->unit[u].cut[rank];
    return n;
}

uint64_t plan_hash(const struct plan *p)
{
    int64_t head[3] = {p->size, p->n_units, p->n_rows};
    uint64_t h = hash64(head, sizeof head, 0);
    for (int u = 0; u < p->n_units; u++) {
        const struct plan_unit *x = &p->unit[u];
        h = hash64(x->cut, (size_t)(p->size + 1) * sizeof *x->cut, h);
        h = hash64(x->row, (size_t)x->n_rows * sizeof *x->row, h);
    }
    return h;
}
