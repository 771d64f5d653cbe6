/* A layer is a module: its tensors (rows of the table), forward and backward, in one file, written
 * once over the kernel table.  Modules form a tree with class names; a strategy hangs hooks on
 * them and knows nothing of layers, and layers know nothing of strategy.
 *
 * Activations.  forward pushes what backward needs on the tape, then a frame that points to it;
 * backward pops frames in the opposite order.  A module that calls children pushes its own frame
 * after them.  The caller provides x and y; y is pushed by the caller before the call. */
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
    /* y from x; the root takes its input from p->batch and adds its loss to p->loss_sum, and gets
     * x = y = NULL.  Local. */
    void (*forward)(const struct module *m, struct pass *p, const void *x, void *y);
    /* dx from dy (which it may destroy; dx may be dy where widths agree); dx NULL: not wanted. */
    void (*backward)(const struct module *m, struct pass *p, void *dy, void *dx);
};

struct module {
    const char *name; /* path: "h.0.attn"; "" for the root */
    const struct module_ops *ops;
    const void *conf;             /* the class's own sizes, in the model's arena */
    int first_row, n_rows;        /* its own tensors, not its children's */
    struct module **children;     /* in execution order */
    int n_children;
    int64_t n_in, n_out;          /* width of a row of x and y; 0 for the root */
    const struct hooks *hooks;    /* NULL: none; set by parallel/ */
};

/* What a module needs to run once. */
struct pass {
    struct stream *s;
    struct stack *tape;   /* activations, in device memory */
    struct stack *frames; /* host memory: where on the tape they are */
    bool training;        /* keep what backward needs, drop out */
    bool dry;             /* dry run: addresses are not real, kernels do nothing */
    bool check;           /* look for NaN behind every module: slow, only after one was seen */
    void *const *weight;  /* by row, compute dtype; valid inside a module's hooks */
    float *const *grad;   /* by row, fp32, to be added to; NULL: frozen */
    const struct batch *batch;
    float loss_scale; /* 1 / (valid targets of the whole optimizer step, all ranks) */
    struct rng_key key; /* of this model, step and purpose: dropout derives its own from it */
    double *loss_sum;   /* host: adds the undivided losses of the batch */
    int64_t *n_correct; /* host: adds right answers (classification); may be NULL */
    void *logits;       /* wanted logits: (B T or B, V) or NULL; ignores the loss where it is set */
    bool last_only;     /* logits of each sample's last position only: (B, V) */
    const char *bad;    /* out: name of the first module with a NaN in y, if check */
};

/* Run m with its hooks.  Local.  module_forward in eval mode leaves nothing on the tape. */
void module_forward(const struct module *m, struct pass *p, const void *x, void *y);
void module_backward(const struct module *m, struct pass *p, void *dy, void *dx);

/* For forward and backward of a class.  Bytes of n_elem values of the compute dtype. */
void *tape_push(struct pass *p, int64_t n_elem);    /* compute dtype */
float *tape_push_f32(struct pass *p, int64_t n_elem);
void *scratch_push(struct pass *p, int64_t n_elem); /* compute dtype; release by mark */
void *frame_push(struct pass *p, size_t n_bytes);
void *frame_pop(struct pass *p, size_t n_bytes); /* valid until the next frame_push */

/* A key for this module's dropout: from p->key and the module's name.  Local. */
struct rng_key module_key(const struct module *m, const struct pass *p);

/* Pre-order walk; f gets each module of the tree below and with m.  Local. */
void module_walk(struct module *m, void (*f)(struct module *m, void *arg), void *arg);
