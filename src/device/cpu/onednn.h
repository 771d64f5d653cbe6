/* Private to device/cpu/: what oneDNN 2.x and 3.x call differently, under one name, and products
 * that are made once for a shape. */
#pragma once
#include "device/cpu/cpu.h"
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

#define DNNL(call)                                                                                 \
    do {                                                                                           \
        dnnl_status_t st_ = (call);                                                                \
        if (st_ != dnnl_success)                                                                   \
            FATAL("oneDNN: %s failed with status %d", #call, (int)st_);                            \
    } while (0)

/* How a matrix lies in blocks, and blocks in these: size[i] along dimension dim[i], from the
 * largest to the smallest.  desc_blocks() is false where it lies in no such way. */
enum { BLOCKS_MAX = 3 };
struct blocks {
    int n;
    int64_t outer[2], padded[2]; /* elements from one largest block to the next; whole blocks */
    int64_t size[BLOCKS_MAX], dim[BLOCKS_MAX];
};

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc;
typedef const_dnnl_memory_desc_t const_desc;

static inline void desc_make(desc *d, const dnnl_dims_t dims, const dnnl_dims_t strides,
                             dnnl_data_type_t type)
{
    DNNL(dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides));
}

/* In the layout that a primitive likes best: ask its description which that is. */
static inline void desc_make_any(desc *d, const dnnl_dims_t dims, dnnl_data_type_t type)
{
    DNNL(dnnl_memory_desc_create_with_tag(d, 2, dims, type, dnnl_format_tag_any));
}

static inline void desc_drop(desc *d)
{
    DNNL(dnnl_memory_desc_destroy(*d));
}

static inline const_desc desc_ref(const desc *d)
{
    return *d;
}

static inline void prim_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const desc d[4],
                             bool bias, const_dnnl_primitive_attr_t attr)
{
    DNNL(
        dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], bias ? d[3] : NULL, d[2], attr));
}

static inline void append_sum(dnnl_post_ops_t ops)
{
    DNNL(dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef));
}

static inline size_t desc_bytes(const_desc d)
{
    return d ? dnnl_memory_desc_get_size(d) : 0;
}

static inline bool desc_blocks(const_desc d, struct blocks *b)
{
    const dnnl_dims_t *outer, *padded, *size, *dim;
    int n;
    if (dnnl_memory_desc_query(d, dnnl_query_inner_nblks_s32, &n) != dnnl_success ||
        n > BLOCKS_MAX ||
        dnnl_memory_desc_query(d, dnnl_query_strides, &outer) != dnnl_success ||
        dnnl_memory_desc_query(d, dnnl_query_padded_dims, &padded) != dnnl_success ||
        dnnl_memory_desc_query(d, dnnl_query_inner_blks, &size) != dnnl_success ||
        dnnl_memory_desc_query(d, dnnl_query_inner_idxs, &dim) != dnnl_success)
        return false;
    *b = (struct blocks){.n = n,
                         .outer = {(*outer)[0], (*outer)[1]},
                         .padded = {(*padded)[0], (*padded)[1]}};
    for (int i = 0; i < n; i++) {
        b->size[i] = (*size)[i];
        b->dim[i] = (*dim)[i];
    }
    return true;
}
#else
typedef dnnl_memory_desc_t desc;
typedef const dnnl_memory_desc_t *const_desc;

static inline void desc_make(desc *d, const dnnl_dims_t dims, const dnnl_dims_t strides,
                             dnnl_data_type_t type)
{
    DNNL(dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides));
}

static inline void desc_make_any(desc *d, const dnnl_dims_t dims, dnnl_data_type_t type)
{
    DNNL(dnnl_memory_desc_init_by_tag(d, 2, dims, type, dnnl_format_tag_any));
}

static inline void desc_drop(desc *d)
{
    (void)d; /* a plain struct in 2.x */
}

static inline const_desc desc_ref(const desc *d)
{
    return d;
}

static inline void prim_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const desc d[4],
                             bool bias, const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    DNNL(dnnl_matmul_desc_init(&op, &d[0], &d[1], bias ? &d[3] : NULL, &d[2]));
    DNNL(dnnl_primitive_desc_create(out, &op, attr, engine, NULL));
}

static inline void append_sum(dnnl_post_ops_t ops)
{
    DNNL(dnnl_post_ops_append_sum(ops, 1.0f));
}

static inline size_t desc_bytes(const_desc d)
{
    return d ? dnnl_memory_desc_get_size(d) : 0;
}

static inline bool desc_blocks(const_desc d, struct blocks *b)
{
    const dnnl_blocking_desc_t *k = &d->format_desc.blocking;
    if (d->format_kind != dnnl_blocked || d->extra.flags != 0 || k->inner_nblks > BLOCKS_MAX)
        return false;
    *b = (struct blocks){.n = k->inner_nblks,
                         .outer = {k->strides[0], k->strides[1]},
                         .padded = {d->padded_dims[0], d->padded_dims[1]}};
    for (int i = 0; i < b->n; i++) {
        b->size[i] = k->inner_blks[i];
        b->dim[i] = k->inner_idxs[i];
    }
    return true;
}
#endif

/* What all products of a device share.  pad is one buffer, as large as the largest wants: its
 * scratchpad, and behind it what the library cannot or should not read in place. */
struct onednn_shared {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    const struct cpu_build *build; /* borrowed */
    int n_threads;
    bool in_place; /* its kernels read sides as they lie, without a copy: those for AVX-512 */
    void *pad; /* owned */
    size_t pad_bytes;
};

/* The next place in a pad of *pad_bytes.  Local. */
static inline size_t onednn_place(size_t *pad_bytes, size_t n_bytes)
{
    size_t at = *pad_bytes;
    *pad_bytes += (n_bytes + 63) / 64 * 64;
    return at;
}

/* Memory objects without memory: whoever runs a primitive gives them theirs.  Local. */
dnnl_memory_t onednn_memory(struct onednn_shared *d, const_desc md);
void onednn_handle(dnnl_memory_t m, const void *p);

/* B of a product, packed by our kernel, by the library, or, where both are NULL, not at all. */
struct packing {
    void (*pack)(const struct cpu_side *s, int n_threads);
    struct cpu_side side;
    dnnl_primitive_t reorder;
    dnnl_memory_t from;
    size_t at; /* where in the pad it is packed */
};

/* B lies as `plain` and `side` say and the product wants it otherwise, or the same.  Takes its
 * place behind *pad_bytes.  Local. */
void packing_make(struct onednn_shared *d, struct packing *k, const struct cpu_side *side,
                  const_desc plain, const_desc wanted, size_t *pad_bytes);
void packing_drop(struct packing *k);
/* Give m the values at p, packed first.  Local. */
void packing_run(const struct packing *k, struct onednn_shared *d, dnnl_memory_t m, const void *p);

struct product {
    struct gemm g;
    dnnl_primitive_t prim;
    dnnl_memory_t a, b, c, bias, pad;
    struct packing pack_b;
    int64_t strip; /* rows of C that prim makes: M, or fewer, which are then added to it */
    bool turns_a;
    size_t turned, sums, dense; /* in the pad: A turned; a strip; vectors without their gaps */
};

/* For the shape of g; grows the pad.  Local. */
void product_make(struct product *e, struct onednn_shared *d, const struct gemm *g);
void product_drop(struct product *e);
/* Local. */
void product_run(const struct product *e, struct onednn_shared *d, const struct gemm *g,
                 const void *A, const void *B, void *C);
