/* A layer is a module: its tensors (rows of the table), forward and backward, in one file, written
 * once over the kernel table.  Modules form a tree with class names; a strategy hangs hooks on
 * them and knows nothing of layers, and layers know nothing of strategy.
 *
 * Activations.  forward pushes what backward needs on the tape, then a frame that points to it;
 * backward pops frames in the opposite order.  A module that calls children pushes its own frame
 * after them, at most one.  The caller provides x and y; y is pushed by the caller before the call.
 * x stays as it is until the module's backward is done (but for forward_residual's), or the caller
 * makes it again: a module whose activations were dropped runs forward on it again, with the same
 * dropout.
 *
 * Loss heads end a model: their y is not an output but the gradient of x, which their forward makes
 * in training (loss_scale is known before it runs); in eval mode y is NULL.  Their backward takes
 * that y as dy and dx at once. */
#pragma once
#include "device/device.h"
#include "tensor/batch.h"

struct module;
struct pass;

struct hooks {
    void (*before_forward)(void *self, struct pass *p);
    void (*after_forward)(void *self, struct pass *p);
    void (*before_backward)(void *self, struct pass *p);
    void (*after_backward)(void *self, struct pass *p);
    void *self;
};

struct module_ops {
    const char *cls; /* class name as people write it in a wrap policy: "Block" */
    bool loss_head;  /* its forward adds to gradients already */
    /* y from x; the root takes its input from p->batch and adds its loss to p->loss_sum, and gets
     * x = y = NULL.  Local. */
    void (*forward)(const struct module *m, struct pass *p, const void *x, void *y);
    /* dx from dy and forward's x (a norm's: its sum); dx NULL: not wanted.  dx and dy are apart and
     * dx is overwritten, and dy may be destroyed, unless the class says otherwise in layers.h. */
    void (*backward)(const struct module *m, struct pass *p, const void *x, void *dy, void *dx);
    /* Norms: forward of sum = x + residual, see module_forward_residual; else NULL.  Local. */
    void (*forward_residual)(const struct module *m, struct pass *p, const void *x,
                             const void *residual, void *sum, void *y);
};

struct module {
    const char *name; /* path: "h.0.attn"; "" for the root */
    const struct module_ops *ops;
    const void *conf;         /* the class's own sizes, in the model's arena */
    int first_row, n_rows;    /* its own tensors, not its children's */
    struct module **children; /* in execution order */
    int n_children;
    int64_t n_in, n_out;       /* width of a row of x and y; 0 where it has none */
    const struct hooks *hooks; /* NULL: none; set by parallel/ */
    bool recompute;            /* keep the input only, and run forward again in backward */
    bool lowest; /* nothing that ran before it is trained: nobody wants its input's gradient */
    bool still;  /* nor anything in it: it has no backward, and forward keeps nothing for one */
};

/* What a module needs to run once. */
struct pass {
    struct stream *s;
    enum dtype compute;   /* of weights and activations: what s->k is the table of */
    enum dtype output;    /* what the root's outputs are rounded to before the loss sees them */
    struct stack *tape;   /* activations, in device memory */
    struct stack *frames; /* host memory: where on the tape they are; real in a dry run too */
    bool training;        /* keep what backward needs, drop out */
    bool dry;             /* dry run: tape and scratch count, kernels do nothing; weight, grad and
                             the batch's arrays may be NULL */
    bool check;           /* look for NaN behind every module: slow, only after one was seen */
    void *const *weight;  /* by row, compute dtype; valid inside a module's hooks */
    float *const *grad;   /* by row, fp32, to be added to; NULL: frozen */
    int64_t *unset;       /* by row: elements of grad that hold no gradient yet, so that the first
                             who adds overwrites or clears them; NULL: there are none */
    int64_t *reach;       /* of a dry run: by row, the most of the tape that is in use when its
                              gradient is first written and later; -1: not written yet.  NULL:
                              nobody asks */
    int n_reach;
    const struct batch *batch;
    float loss_scale;   /* of fp16, 1 else, over the valid targets of the whole step, all ranks */
    const float *rope;  /* (T, D) cosines and sines, made by the root; NULL: no rotary attention */
    struct rng_key key; /* of this model, step and purpose: dropout derives its own from it */
    double *loss_sum;   /* host: adds the undivided losses of the batch */
    int64_t *n_correct; /* host: adds right answers (classification); may be NULL */
    void *logits;       /* wanted logits: (B T or B, V), compute dtype, or NULL; no loss then, eval
                           mode only */
    int64_t n_context;  /* last_only: tokens of a sample that are text, the rest is padding; 0: T */
    bool last_only;     /* logits of each sample's last position only: (B, V) */
    const char *bad;    /* out: name of the first module with a NaN in y, if check */
};

/* Bytes of frames that a module takes at most: size the frames stack by the number of modules. */
enum { FRAME_BYTES_MAX = 192 };

/* Find what is lowest and still, by the rows' flags.  Local. */
void module_mark_still(struct module *root, const struct tensor_table *table);

/* Run m with its hooks.  Local.  module_forward in eval mode leaves nothing on the tape.  Backward
 * of a module that is still fires none and touches neither dy nor dx. */
void module_forward(const struct module *m, struct pass *p, const void *x, void *y);
void module_backward(const struct module *m, struct pass *p, void *dy, void *dx);

/* module_backward where x was not kept, but made again, at another place.  Local. */
void module_backward_from(const struct module *m, struct pass *p, const void *x, void *dy,
                          void *dx);

/* module_forward of a norm that closes a residual branch, in one pass over memory: sum = x +
 * residual, y = norm(sum).  sum is the caller's, on the tape.  Local. */
void module_forward_residual(const struct module *m, struct pass *p, const void *x,
                             const void *residual, void *sum, void *y);

/* For forward and backward of a class.  All Local.  n_elem values of the compute dtype … */
void *tape_push(struct pass *p, int64_t n_elem);
float *tape_push_f32(struct pass *p, int64_t n_elem);
void *scratch_push(struct pass *p, int64_t n_elem); /* released by mark */
float *scratch_push_f32(struct pass *p, int64_t n_elem);
void pass_zero(struct pass *p, void *y, int64_t n_elem);         /* y = 0 */
void *pass_at(const struct pass *p, void *base, int64_t n_elem); /* base + n_elem */
const void *pass_at_const(const struct pass *p, const void *base, int64_t n_elem);

/* … and a record of n_bytes (at most FRAME_BYTES_MAX - 64) in host memory.  Local. */
void *frame_push(struct pass *p, size_t n_bytes);
void *frame_pop(struct pass *p, size_t n_bytes); /* valid until the next frame_push */

/* B T, or B where samples are no token strings.  Local. */
int64_t pass_rows(const struct pass *p);

/* The gradient of a row, to be added to: cleared if nobody has been there.  NULL in a dry run and
 * of a frozen one.  Local. */
float *pass_grad(const struct pass *p, int row);
/* The same for who can overwrite: *unset says that it must.  Local. */
float *pass_grad_first(const struct pass *p, int row, bool *unset);

/* Own row i of m: NULL if it has none, in a dry run, and the gradient of a frozen one.  Local. */
const void *module_weight(const struct module *m, const struct pass *p, int i);
float *module_grad(const struct module *m, const struct pass *p, int i);

/* A key for this module's dropout: from p->key and the module's name.  Local. */
struct rng_key module_key(const struct module *m, const struct pass *p);

/* Whether this pass drops anything at that rate.  Local. */
bool module_drops(const struct pass *p, float rate);
/* y = dropout(x) over rows of C with m's key; y may be x.  Its own backward.  Call it only where
 * module_drops().  Local. */
void module_dropout(const struct module *m, struct pass *p, float rate, void *y, const void *x,
                    int64_t C);

/* Pre-order walk; f gets each module of the tree below and with m.  Local. */
void module_walk(struct module *m, void (*f)(struct module *m, void *arg), void *arg);
