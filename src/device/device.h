/* A device: memory, streams and the math primitives that layers and optimizers are written in.
 *
 * The device is an argument everywhere; no code outside this folder knows which one it has.  Every
 * primitive stands once in kernel_list.h; a device supplies a full table of them for each compute
 * dtype.  void * in a primitive is "an array of the compute dtype", float * is always fp32. */
#pragma once
#include "base/arena.h"
#include "base/memory.h"
#include "base/rng.h"
#include "tensor/tensor.h"

enum act_kind { ACT_NONE, ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_SILU, ACT_TANH };

/* y (M, N) = act(x (M, K) · W + b (N)); W is (K, N) if in_out (Conv1D), else (N, K) (Linear). */
struct linear {
    int64_t M, N, K;
    int64_t ldy; /* elements from a row of y or dy to the next; 0: N.  Only without act. */
    bool in_out;
    enum act_kind act;
    bool unset_dw; /* backward overwrites dw instead of adding to it */
    bool wide_dx;  /* backward makes dx in fp32 … */
    bool add_dx;   /* … and adds to it */
};

/* Counter-based dropout: element e of the sample with global id s is kept by its own number under
 * key, whatever the rank, batch or world size. */
struct dropout {
    float p; /* share that is dropped; 0: none */
    struct rng_key key;
    const int64_t *sample; /* (B) */
};

/* Causal attention.  Element (b, t, h, d) of q lies at q[(b T + t) q_stride + h D + d]; k and v
 * alike with kv_stride and head h / (H / n_kv_head); y is (B, T, H D). */
struct attention {
    int64_t B, T, H, n_kv_head, D;
    int64_t q_stride, kv_stride;
    float scale;
    struct dropout drop; /* element (h T + t) T + u of a sample */
};

/* Rotary positions: head h of token (b, t) lies at x[(b T + t) stride + h D].  Its pair i is
 * (i, i + D / 2), interleaved: (2 i, 2 i + 1). */
struct rope {
    int64_t B, T, n_head, D, stride;
    bool interleaved, inverse; /* inverse: turn back, which is its backward */
};

struct adamw {
    float lr, eps, weight_decay;
    double beta1, beta2;            /* fp64: 1 - 0.999f is wrong in its fifth digit */
    float grad_scale;               /* multiplies the gradient: clipping */
    float correction1, correction2; /* 1 - beta^t */
    bool decoupled;                 /* AdamW; false: decay is added to the gradient (Adam) */
};

struct sgd {
    float lr, momentum, dampening, weight_decay, grad_scale;
    bool nesterov, first; /* first: the momentum buffer starts as the gradient */
};

struct stream;
struct device;

struct kernels {
#define KERNEL(name, args) void(*name) args;
#define KERNEL_SIZE(name, args) size_t(*name) args;
#include "device/kernel_list.h"
#undef KERNEL
#undef KERNEL_SIZE
};

struct memory_ops {
    void *(*alloc)(size_t n_bytes); /* aligned to 4096, zeroed; NULL when there is none left */
    void (*free)(void *p, size_t n_bytes);
    void (*to_host)(struct stream *s, void *host, const void *dev, size_t n_bytes);
    void (*to_device)(struct stream *s, void *dev, const void *host, size_t n_bytes);
    void (*zero)(struct stream *s, void *dev, size_t n_bytes);
    void (*copy)(struct stream *s, void *to, const void *from, size_t n_bytes); /* inside dev */
    /* n spans of dev, one behind another; the host may read them when this returns */
    void (*gather)(struct stream *s, void *host, const struct memory_span *span, int n);
};

struct matmul;

struct device {
    const char *name; /* "cpu" */
    const struct memory_ops *mem;
    int n_threads;
    int isa;               /* instruction set in use, see device_isa_name(); equal on all ranks */
    struct matmul *matmul; /* owned: the matrix product library's state */
    const struct kernels *table[DTYPE_COUNT]; /* for isa, by compute dtype; NULL: none */
    struct kernels null_table[DTYPE_COUNT];   /* do nothing, same sizes: for a dry run */
};

/* In-order queue of work with its scratch.  On a CPU calls run at once. */
struct stream {
    struct device *dev;
    const struct kernels *k; /* of the compute dtype; the null table in a dry run */
    struct stack scratch;
};

/* Open the CPU.  n_threads ≥ 1; isa at most device_isa_best() (the smallest over the ranks);
 * matmul: NULL or "auto" for the best that was built in, else "onednn", "cblas" or "plain".
 * ERR_RESOURCE if it is not there.  Local, but isa must be equal on all ranks. */
int device_open_cpu(int n_threads, int isa, const char *matmul, struct device **out);
void device_close(struct device **dev);

int device_isa_best(void);            /* of this machine and build.  Local. */
const char *device_isa_name(int isa); /* "avx512", "avx2", "base".  Local. */
/* One line about it, written into buf; returns buf.  Local. */
const char *device_describe(const struct device *dev, char *buf, size_t cap);
/* Whether products of bf16 are the library's own; else, and for fp16 always, both sides are widened
 * by tiles and multiplied in fp32.  Local. */
bool device_native_bf16(const struct device *dev);

/* Full table for a compute dtype, NULL if the device has none (fp32 is always there).  Local. */
const struct kernels *device_kernels(const struct device *dev, enum dtype compute);

/* A table whose entries do nothing but whose sizes are the device's: for a dry run.  Local. */
const struct kernels *device_null_kernels(const struct device *dev, enum dtype compute);

/* Name of the first missing entry of a table, NULL if it is complete.  Local. */
const char *kernels_missing(const struct kernels *k);
