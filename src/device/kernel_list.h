/* Every math primitive that a device must provide.  No guard: included several times.
 * KERNEL enqueues work on s and cannot fail; KERNEL_SIZE is a pure function of sizes and device.
 * "adds" means +=; everything else overwrites.  Rows are contiguous.  All are Local.
 * A kernel gives the same bits wherever an element lies in its range, and for every row whatever
 * the number of rows, where the matrix product library does.
 * KERNEL_F32: knows no compute dtype, and is the same in every table of a device. */
#ifndef KERNEL_F32
#define KERNEL_F32(name, args) KERNEL(name, args)
#define KERNEL_F32_IS_KERNEL
#endif

/* Bytes that the two below take of the stream's scratch at most, and so for fewer rows. */
KERNEL_SIZE(linear_scratch, (const struct device *dev, const struct linear *l))
/* y, and pre = the values before act where pre is not NULL.  b may be NULL. */
KERNEL(linear_forward, (struct stream * s, const struct linear *l, void *y, void *pre,
                        const void *x, const void *w, const void *b))
/* dy (M, N) becomes the gradient of pre (so nothing happens to it without an activation).
 * dx (M, K), dw, db or NULL (frozen).  dw adds unless unset_dw, db adds, dx adds with add_dx and is
 * fp32 with wide_dx.  pre as saved, needed unless act is ACT_NONE. */
KERNEL(linear_backward, (struct stream * s, const struct linear *l, void *dx, float *dw, float *db,
                         void *dy, const void *x, const void *w, const void *pre))

/* y = act(x), and dy *= act'(x): what the two above do behind and before their products. */
KERNEL(act_forward, (struct stream * s, void *y, const void *x, enum act_kind act, int64_t n_elem))
KERNEL(act_backward,
       (struct stream * s, void *dy, const void *x, enum act_kind act, int64_t n_elem))
/* y = act(x), slope = act'(x), which may be x. */
KERNEL(act_both,
       (struct stream * s, void *y, void *slope, const void *x, enum act_kind act, int64_t n_elem))

/* sum = x + residual (residual NULL: sum is not written and x is normalised), then
 * y = (sum - mean) rstd w + b over rows of C; mean, rstd (rows) are kept for backward.  b or NULL.
 * Source: Ba et al. 2016, arXiv:1607.06450. */
KERNEL(layernorm_forward,
       (struct stream * s, void *y, void *sum, float *mean, float *rstd, const void *x,
        const void *residual, const void *w, const void *b, int64_t rows, int64_t C, float eps))
/* dx adds (the residual stream's gradient is already there); dw, db add; all may be NULL.  x is the
 * sum. */
KERNEL(layernorm_backward,
       (struct stream * s, void *dx, float *dw, float *db, const void *dy, const void *x,
        const void *w, const float *mean, const float *rstd, int64_t rows, int64_t C))

/* The same with y = sum rstd w, rstd = 1 / sqrt(mean(sum²) + eps).
 * Source: Zhang & Sennrich 2019, arXiv:1910.07467. */
KERNEL(rmsnorm_forward, (struct stream * s, void *y, void *sum, float *rstd, const void *x,
                         const void *residual, const void *w, int64_t rows, int64_t C, float eps))
/* dx and dw add, or are NULL. */
KERNEL(rmsnorm_backward, (struct stream * s, void *dx, float *dw, const void *dy, const void *x,
                          const void *w, const float *rstd, int64_t rows, int64_t C))

/* table (T, D): cos and sin of t theta^(-2 i / D) as pairs, i from 0 to D / 2 - 1; D is even.
 * Source: Su et al. 2021, arXiv:2104.09864. */
KERNEL_F32(rope_table, (struct stream * s, float *table, int64_t T, int64_t D, double theta))
/* Turn the pairs of x, in place. */
KERNEL(rope, (struct stream * s, void *x, const float *table, const struct rope *r))

/* y (rows, F) = silu(gate) up, gate_up (rows, 2F) with the gate first. */
KERNEL(swiglu_forward, (struct stream * s, void *y, const void *gate_up, int64_t rows, int64_t F))
/* d_gate_up may be gate_up itself. */
KERNEL(swiglu_backward, (struct stream * s, void *d_gate_up, const void *dy, const void *gate_up,
                         int64_t rows, int64_t F))

/* y (B, T, C) = wte[ids] + wpe[t]; wpe may be NULL. */
KERNEL(embedding_forward, (struct stream * s, void *y, const int32_t *ids, const void *wte,
                           const void *wpe, int64_t B, int64_t T, int64_t C))
/* dwte (V, C), dwpe (T, C) add, or NULL; in token order, without atomics. */
KERNEL(embedding_backward, (struct stream * s, float *dwte, float *dwpe, const void *dy,
                            const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V))

/* Bytes of the scratch argument of the two below. */
KERNEL_SIZE(attention_scratch, (const struct attention *a, int n_threads))
/* y and lse (B, H, T), the log-sum-exp of each row of scores.  Never stores T x T for all heads. */
KERNEL(attention_forward, (struct stream * s, const struct attention *a, void *y, float *lse,
                           const void *q, const void *k, const void *v, void *scratch))
/* dq, dk, dv have the strides of q, k, v. */
KERNEL(attention_backward, (struct stream * s, const struct attention *a, void *dq, void *dk,
                            void *dv, const void *dy, const void *y, const float *lse,
                            const void *q, const void *k, const void *v, void *scratch))

/* y = x kept / (1 - p), else 0; y may be x.  n = elements of a sample.  Its own backward. */
KERNEL(dropout,
       (struct stream * s, void *y, const void *x, const struct dropout *d, int64_t B, int64_t n))

KERNEL(add, (struct stream * s, void *y, const void *a, const void *b, int64_t n_elem))
/* y *= x */
KERNEL(multiply, (struct stream * s, void *y, const void *x, int64_t n_elem))
/* y adds a x over rows of N, x's one behind the other, y's ldy elements apart. */
KERNEL(add_scaled,
       (struct stream * s, void *y, int64_t ldy, const void *x, float a, int64_t rows, int64_t N))
/* y = x in the compute dtype, rounded to nearest even. */
KERNEL(cast, (struct stream * s, void *y, const float *x, int64_t n_elem))

/* Losses see a model's outputs rounded to the dtype output (DTYPE_F32: as they are), and what they
 * give back is rounded to it on its way, as the gradient of a cast is cast: before it is stored in
 * the compute dtype.
 * loss (rows) = -log softmax(logits)[target], 0 where target < 0; dlogits (rows, V) =
 * scale (softmax - onehot), may be logits itself, or NULL.  Both lie in panels of `panel` columns
 * (the last may have fewer), each a matrix of all rows, one behind the other. */
KERNEL(cross_entropy,
       (struct stream * s, float *loss, void *dlogits, const void *logits, const int32_t *targets,
        int64_t rows, int64_t V, int64_t panel, float scale, enum dtype output))
/* loss (rows) = sum over N of (y - value)²; dy = 2 scale (y - value), or NULL. */
KERNEL(mse, (struct stream * s, float *loss, void *dy, const void *y, const float *values,
             int64_t rows, int64_t N, float scale, enum dtype output))
/* *sum adds x[0] + x[1] + … in that order, in fp64.  sum is host memory, ready at once. */
KERNEL_F32(sum_f64, (struct stream * s, double *sum, const float *x, int64_t n_elem))
/* *n adds the rows whose largest logit is the target's (the first one, where equal). */
KERNEL(count_correct, (struct stream * s, int64_t *n, const void *logits, const int32_t *targets,
                       int64_t rows, int64_t V, enum dtype output))
/* *n adds the elements that are NaN or infinite. */
KERNEL(count_nonfinite, (struct stream * s, int64_t *n, const void *x, int64_t n_elem))

/* Flat ranges, fp32. */
KERNEL_F32(accumulate, (struct stream * s, float *y, const float *x, int64_t n_elem)) /* y += x */
KERNEL_F32(scale, (struct stream * s, float *y, float a, int64_t n_elem))             /* y *= a */
/* r vectors of n elements, element i of vector k at v[i step + k next], become orthogonal to each
 * other and of length 1, in order; those that the ones before them span become 0. */
KERNEL_F32(orthonormalize,
           (struct stream * s, float *v, int64_t n, int64_t r, int64_t step, int64_t next))
/* block[i] = sum of squares of g[1024 i …], in fp64; the last block may be short. */
KERNEL_F32(square_sums, (struct stream * s, double *block, const float *g, int64_t n_elem))
/* copy: the new p in the compute dtype, or NULL. */
KERNEL(adamw, (struct stream * s, float *p, float *m, float *v, const float *g, void *copy,
               int64_t n_elem, const struct adamw *h))
KERNEL(sgd, (struct stream * s, float *p, float *momentum, const float *g, void *copy,
             int64_t n_elem, const struct sgd *h)) /* momentum NULL where h->momentum is 0 */
/* Elements first … first + n_elem - 1 of a tensor by its init rule. */
KERNEL_F32(fill, (struct stream * s, float *p, const struct init_rule *rule, struct rng_key key,
                  int64_t first, int64_t n_elem))
#ifdef KERNEL_F32_IS_KERNEL
#undef KERNEL_F32
#undef KERNEL_F32_IS_KERNEL
#endif
