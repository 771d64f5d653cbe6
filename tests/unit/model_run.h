/* Runs a module tree in a test: weights by their init rules, gradients, and a tape and scratch of
 * exactly the bytes that a dry run asked for, so that every pass here proves the dry run right. */
#pragma once
#include "base/hash.h"
#include "layer/layers.h"
#include "model/model.h"

#include <stdlib.h>

enum { RUN_SEED = 42 };

struct run {
    struct device *dev;
    struct stream s;
    struct tensor_table *table;
    const struct module *root;
    void **weight; /* fp32 */
    void **cast;   /* what the pass reads: weight itself, or bf16 copies */
    float **grad;
    struct stack tape, frames;
    struct pass p;
    double loss;
    int64_t n_correct;
    size_t dry_tape, dry_scratch; /* peaks of the last dry run */
};

static inline void *run_alloc(size_t n_bytes)
{
    void *p = aligned_alloc(64, (n_bytes + 64) & ~(size_t)63);
    if (!p)
        FATAL("out of memory for %zu bytes", n_bytes);
    memset(p, 0, n_bytes);
    return p;
}

static inline int64_t run_elems(const struct run *r, int row)
{
    return shape_elems(&r->table->rows[row].shape);
}

static inline float *run_weight(const struct run *r, const char *name)
{
    int row = tensor_find(r->table, name);
    if (row < 0)
        FATAL("no tensor \"%s\"", name);
    return r->weight[row];
}

static inline float *run_grad(const struct run *r, const char *name)
{
    int row = tensor_find(r->table, name);
    if (row < 0)
        FATAL("no tensor \"%s\"", name);
    return r->grad[row];
}

/* Tensors lie as the plan lays them out, each at the next whole block.  at has an entry more than
 * the table: what they all lie in, to be freed. */
static inline void run_place(const struct run *r, void **at, size_t elem_bytes)
{
    int64_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        char *base = pass ? run_alloc((size_t)n * elem_bytes) : NULL;
        n = 0;
        for (int i = 0; i < r->table->n_rows; i++) {
            at[i] = pass ? base + (size_t)n * elem_bytes : NULL;
            n += (run_elems(r, i) + BLOCK_ELEMS - 1) / BLOCK_ELEMS * BLOCK_ELEMS;
        }
        at[r->table->n_rows] = base;
    }
}

static inline void run_zero_grads(struct run *r)
{
    for (int i = 0; i < r->table->n_rows; i++)
        memset(r->grad[i], 0, (size_t)run_elems(r, i) * sizeof(float));
    r->loss = 0;
    r->n_correct = 0;
}

static inline void run_count_module(struct module *m, void *arg)
{
    (void)m;
    ++*(size_t *)arg;
}

/* The device's matrix product is its plain one: tests of layers are not to depend on a library. */
static inline void run_init(struct run *r, struct tensor_table *table, struct module *root)
{
    *r = (struct run){.table = table, .root = root};
    if (device_open_cpu(1, device_isa_best(), "plain", &r->dev) != ERR_OK)
        FATAL("%s", err_text());
    r->s = (struct stream){.dev = r->dev, .k = device_kernels(r->dev, DTYPE_F32)};
    size_t n_places = (size_t)table->n_rows + 1, n_modules = 0;
    r->weight = run_alloc(n_places * sizeof *r->weight);
    r->grad = run_alloc(n_places * sizeof *r->grad);
    void **grad = run_alloc(n_places * sizeof *grad);
    run_place(r, r->weight, sizeof(float));
    run_place(r, grad, sizeof(float));
    for (int i = 0; i < table->n_rows; i++) {
        const struct tensor_row *row = &table->rows[i];
        struct rng_key key = rng_key_make(RUN_SEED, hash64_string(row->name));
        r->s.k->fill(&r->s, r->weight[i], &row->init, key, 0, run_elems(r, i));
    }
    for (int i = 0; i <= table->n_rows; i++)
        r->grad[i] = grad[i];
    free(grad);
    r->cast = r->weight;
    module_walk(root, run_count_module, &n_modules);
    size_t frame_bytes = n_modules * FRAME_BYTES_MAX;
    stack_init(&r->frames, run_alloc(frame_bytes), frame_bytes);
    r->p = (struct pass){
        .s = &r->s,
        .compute = DTYPE_F32,
        .tape = &r->tape,
        .frames = &r->frames,
        .weight = r->cast,
        .grad = r->grad,
        .loss_scale = 1.0f,
        .key = rng_key_make(RUN_SEED, 1),
        .loss_sum = &r->loss,
        .n_correct = &r->n_correct,
    };
}

/* From here on passes compute in bf16, from copies of the weights as they are now. */
static inline void run_bf16(struct run *r)
{
    r->p.compute = DTYPE_BF16;
    r->s.k = device_kernels(r->dev, DTYPE_BF16);
    REQUIRE(r->s.k && r->cast == r->weight);
    r->cast = run_alloc(((size_t)r->table->n_rows + 1) * sizeof *r->cast);
    run_place(r, r->cast, dtype_bytes(DTYPE_BF16));
    for (int i = 0; i < r->table->n_rows; i++)
        r->s.k->cast(&r->s, r->cast[i], r->weight[i], run_elems(r, i));
}

static inline void run_clear(struct run *r)
{
    if (r->cast != r->weight) {
        free(r->cast[r->table->n_rows]);
        free(r->cast);
    }
    free(r->weight[r->table->n_rows]);
    free(r->grad[r->table->n_rows]);
    free(r->weight);
    free(r->grad);
    free(r->frames.base);
    free(r->tape.base);
    free(r->s.scratch.base);
    device_close(&r->dev);
}

/* One pass with the stacks as they are.  dx and dy as the root's class has it. */
static inline void run_once(struct run *r, const void *x, void *y, void *dy, void *dx)
{
    module_forward(r->root, &r->p, x, y);
    if (r->p.training)
        module_backward(r->root, &r->p, dy, dx);
}

static inline void run_resize(struct stack *s, size_t n_bytes)
{
    free(s->base);
    stack_init(s, run_alloc(n_bytes), n_bytes);
}

/* Dry run, stacks of just its peaks, then the real pass.  grads are added to. */
static inline void run_pass(struct run *r, bool training, const struct batch *b, const void *x,
                            void *y, void *dy, void *dx)
{
    const struct kernels *k = r->s.k;
    struct stack tape = r->tape, scratch = r->s.scratch;
    double loss = r->loss;
    struct batch blind = {.B = b->B, .T = b->T};
    r->p.training = training;
    r->p.batch = &blind;
    r->p.dry = true;
    r->s.k = device_null_kernels(r->dev, r->p.compute);
    stack_init_counting(&r->tape);
    stack_init_counting(&r->s.scratch);
    r->p.weight = NULL;
    r->p.grad = NULL;
    run_once(r, x, y, dy, dx);
    r->dry_tape = r->tape.peak;
    r->dry_scratch = r->s.scratch.peak;
    r->loss = loss;

    r->tape = tape;
    r->s.scratch = scratch;
    run_resize(&r->tape, r->dry_tape);
    run_resize(&r->s.scratch, r->dry_scratch);
    r->s.k = k;
    r->p.dry = false;
    r->p.batch = b;
    r->p.weight = r->cast;
    r->p.grad = r->grad;
    run_once(r, x, y, dy, dx);
}

/* The largest |a - b| as a share of the largest |b|. */
static inline double run_difference(const float *a, const float *b, int64_t n_elem)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n_elem; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = d <= worst ? worst : d; /* a NaN stays */
        largest = fmax(largest, fabs((double)b[i]));
    }
    return largest > 0 ? worst / largest : worst;
}

/* Build a model from "key=value" words over its family's defaults; the status of model_build. */
static inline int run_build(const char *type, const struct sample_shape *shape, struct arena *a,
                            const char *const *words, const char **key, struct model **out)
{
    const struct model_family *family = model_family_find(type);
    REQUIRE(family);
    void *conf = arena_alloc(a, family->conf_bytes);
    REQUIRE(opt_defaults(family->opts, conf, a) == ERR_OK);
    for (; *words; words++) {
        const char *eq = strchr(*words, '=');
        const struct opt *o =
            opt_find(family->opts, arena_strndup(a, *words, (size_t)(eq - *words)));
        if (!o || opt_parse(o, eq + 1, conf, a) != ERR_OK)
            FATAL("%s: %s", *words, o ? err_text() : "no such key");
    }
    return model_build("", family, conf, NULL, shape, a, key, out);
}

#define RUN_BUILD(type, shape, a, key, out, ...)                                                   \
    run_build(type, shape, a, (const char *const[]){__VA_ARGS__, NULL}, key, out)
