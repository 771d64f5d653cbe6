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
#endif

/* What all products of a device share.  pad is one buffer, as large as the largest wants: its
 * scratchpad, and behind it what the library cannot or should not read in place. */
struct onednn_shared {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void *pad; /* owned */
    size_t pad_bytes;
};

/* One side of a product and how it is packed.  reorder NULL: it is read where it lies. */
struct packing {
    dnnl_primitive_t reorder;
    dnnl_memory_t from;
    size_t at; /* where in the pad it is packed */
};

struct product {
    struct gemm g;
    dnnl_primitive_t prim;
    dnnl_memory_t a, b, c, bias, pad;
    struct packing pack_a, pack_b;
    size_t dense; /* where in the pad a vector is without its gaps */
};

/* For the shape of g; grows the pad.  Local. */
void product_make(struct product *e, struct onednn_shared *d, const struct gemm *g);
void product_drop(struct product *e);
/* Local. */
void product_run(const struct product *e, struct onednn_shared *d, const struct gemm *g,
                 const void *A, const void *B, void *C);
