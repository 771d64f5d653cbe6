/* What every language model promises, checked on a run of one: the tape, batches that are cut, and
 * bf16 beside fp32. */
#pragma once
#include "unit/model_run.h"

/* A training pass on stacks of the dry run's bytes, which it fills and empties again. */
static inline void check_train(struct run *r, const struct batch *b)
{
    run_pass(r, true, b, NULL, NULL, NULL, NULL);
    CHECK(r->tape.top == 0 && r->frames.top == 0 && r->s.scratch.top == 0);
    CHECK(r->tape.peak == r->dry_tape && r->s.scratch.peak == r->dry_scratch);
}

static inline float **copy_grads(const struct run *r)
{
    float **copy = run_alloc((size_t)r->table->n_rows * sizeof *copy);
    for (int i = 0; i < r->table->n_rows; i++) {
        size_t n_bytes = (size_t)run_elems(r, i) * sizeof(float);
        copy[i] = run_alloc(n_bytes);
        memcpy(copy[i], r->grad[i], n_bytes);
    }
    return copy;
}

static inline void free_grads(const struct run *r, float **grads)
{
    for (int i = 0; i < r->table->n_rows; i++)
        free(grads[i]);
    free(grads);
}

/* Gradients of b as a whole are the sum over its samples one by one. */
static inline void check_cut_batch(struct run *r, const struct batch *b)
{
    run_zero_grads(r);
    check_train(r, b);
    double loss = r->loss;
    float **whole = copy_grads(r);
    run_zero_grads(r);
    for (int64_t s = 0; s < b->B; s++) {
        struct batch one = *b;
        one.B = 1;
        one.ids += s * b->T;
        one.targets += s * b->T;
        one.sample += s;
        check_train(r, &one);
    }
    CHECK_NEAR(r->loss / loss, 1, 1e-6);
    for (int i = 0; i < r->table->n_rows; i++) {
        double worst = run_difference(r->grad[i], whole[i], run_elems(r, i));
        check_that(worst <= 1e-6, __FILE__, __LINE__, "%s: off by %.3g", r->table->rows[i].name,
                   worst);
    }
    free_grads(r, whole);
}

/* Logits of a sample's last position are those of the whole sample (want, (B, T, V)) there. */
static inline void check_short_samples(struct run *r, const struct batch *whole, const float *want,
                                       int64_t V)
{
    enum { SHORT = 5 };
    int64_t B = whole->B, T = whole->T;
    int32_t *ids = run_alloc((size_t)(B * SHORT) * sizeof *ids);
    float *last = run_alloc((size_t)(B * V) * sizeof *last);
    for (int64_t i = 0; i < B * SHORT; i++)
        ids[i] = whole->ids[i / SHORT * T + i % SHORT];
    struct batch b = {.B = B, .T = SHORT, .ids = ids, .sample = whole->sample};
    r->p.logits = last;
    r->p.last_only = true;
    run_pass(r, false, &b, NULL, NULL, NULL, NULL);
    r->p.logits = NULL;
    r->p.last_only = false;
    for (int64_t i = 0; i < B; i++)
        CHECK(run_difference(last + i * V, want + (i * T + SHORT - 1) * V, V) <= 1e-5);
    free(ids);
    free(last);
}

/* |a - b| / |b|, Euclidean. */
static inline double norm_difference(const float *a, const float *b, int64_t n_elem)
{
    double d = 0, n = 0;
    for (int64_t i = 0; i < n_elem; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        n += (double)b[i] * (double)b[i];
    }
    return sqrt(d / n);
}

/* A training and an evaluation pass of one model in fp32 (r, which has run none in bf16 yet) and in
 * bf16.  Rounding to bf16 errs by up to u = 2^-9 (0.2 %), by u / sqrt(3) in the mean.  A value that
 * went through n such roundings, each of its own sign, is off by some sqrt(n) u / sqrt(3): on their
 * longest way these models round an activation and its gradient fewer than 100 times, which makes
 * 1.1 % of a gradient tensor's norm.  The gradients of q and k are differences, since a softmax's
 * gradient sums to 0: twice that is allowed.  A loss is a sum over rows whose errors are
 * independent; each row's is that of its logits, of about 1 here, and the mean's falls with the
 * root of their number. */
static inline void check_bf16(struct run *r, const struct batch *b)
{
    const double u = 0x1p-9, grad_tolerance = 0.022;
    double loss[2], eval_loss[2];
    size_t tape[2];
    float **want = NULL;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        if (bf16)
            run_bf16(r);
        run_zero_grads(r);
        run_pass(r, false, b, NULL, NULL, NULL, NULL);
        eval_loss[bf16] = r->loss;
        r->loss = 0;
        check_train(r, b);
        loss[bf16] = r->loss;
        tape[bf16] = r->dry_tape;
        if (!bf16)
            want = copy_grads(r);
    }
    CHECK(loss[1] != loss[0]); /* it did compute in another precision */
    CHECK(loss[1] == eval_loss[1]);
    int64_t rows = b->T > 0 ? b->B * b->T : b->B;
    CHECK(fabs(loss[1] - loss[0]) / (double)rows <= u / sqrt((double)rows));
    if (b->T > 0) /* all activations are bf16, statistics are not; an mlp copies its features */
        CHECK(tape[1] < tape[0] * 6 / 10);
    for (int i = 0; i < r->table->n_rows; i++) {
        double off = norm_difference(r->grad[i], want[i], run_elems(r, i));
        check_that(off <= grad_tolerance, __FILE__, __LINE__, "%s: off by %.3g of its norm",
                   r->table->rows[i].name, off);
    }
    free_grads(r, want);
}
