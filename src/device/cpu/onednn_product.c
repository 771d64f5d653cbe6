/* A matrix product by oneDNN for one shape.  Packed for it are the sides of large products, as the
 * library likes them best, and vectors with gaps, which oneDNN 3.7 overlooks. */
#ifdef HAVE_ONEDNN
#include "device/cpu/onednn.h"

#include <string.h>

/* Memory objects without memory: run() gives them theirs. */
static dnnl_memory_t memory_make(struct onednn_shared *d, const_desc md)
{
    dnnl_memory_t m;
    DNNL(dnnl_memory_create(&m, md, d->engine, DNNL_MEMORY_NONE));
    return m;
}

static dnnl_primitive_attr_t attr_make(bool accumulate)
{
    dnnl_primitive_attr_t attr;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (accumulate) {
        dnnl_post_ops_t ops;
        DNNL(dnnl_post_ops_create(&ops));
        append_sum(ops);
        DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
        DNNL(dnnl_post_ops_destroy(ops));
    }
    return attr;
}

static void grow_pad(struct onednn_shared *d, size_t n_bytes)
{
    if (n_bytes <= d->pad_bytes)
        return;
    cpu_free(d->pad, d->pad_bytes);
    d->pad = cpu_alloc(n_bytes);
    if (!d->pad)
        FATAL("out of memory for %zu bytes of oneDNN's scratchpad", n_bytes);
    d->pad_bytes = n_bytes;
}

/* Vectors with gaps that oneDNN 3.7's AVX-512 kernels read or write as if dense, without an error:
 * A of one row, C of one column.  B is safe. */
static bool gaps_in_a(const struct gemm *g)
{
    return g->M == 1 && g->K > 1 && g->a_trans && g->lda > 1;
}

static bool gaps_in_c(const struct gemm *g)
{
    return g->N == 1 && g->M > 1 && g->ldc > 1;
}

static size_t a_size(const struct gemm *g)
{
    return g->bf16 ? 2 : 4;
}

static size_t c_size(const struct gemm *g)
{
    return gemm_c_is_f32(g) ? 4 : 2;
}

/* n elements of `size` bytes that lie from_ld and to_ld elements apart. */
static void copy_vector(void *to, int64_t to_ld, const void *from, int64_t from_ld, int64_t n,
                        size_t size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)(i * to_ld) * size,
               (const char *)from + (size_t)(i * from_ld) * size, size);
}

/* What is worth packing, by the shape alone, since it may decide on bits.  A packed side makes a
 * product 3-10 % faster, most of all in bf16, whose pairs the library otherwise interleaves for
 * every tile; packing costs a pass over the side, and more where it has to turn long rows. */
enum { PACK_M = 512, PACK_ELEMS = 8 << 20, PACK_TURNED = 1024 };

static bool packs_b(const struct gemm *g)
{
    return g->M >= PACK_M && g->N >= 64 && g->K >= 64 && g->N * g->K <= PACK_ELEMS &&
           (!g->b_trans || g->ldb <= PACK_TURNED);
}

static bool packs_a(const struct gemm *g)
{
    return g->bf16 && g->a_trans && packs_b(g) && g->M <= g->N && g->M * g->K <= PACK_ELEMS;
}

static size_t round_pad(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Make the reorder from plain to what the primitive wants, unless that is the same. */
static void packing_make(struct onednn_shared *d, struct packing *k, const_desc plain,
                         const_desc wanted, size_t *pad_bytes)
{
    dnnl_primitive_desc_t pd;
    if (dnnl_memory_desc_equal(plain, wanted))
        return;
    DNNL(dnnl_reorder_primitive_desc_create(&pd, plain, d->engine, wanted, d->engine, NULL));
    DNNL(dnnl_primitive_create(&k->reorder, pd));
    DNNL(dnnl_primitive_desc_destroy(pd));
    k->from = memory_make(d, plain);
    k->at = *pad_bytes;
    *pad_bytes += round_pad(desc_bytes(wanted));
}

/* Descriptions of A, B, C, bias as they lie in memory. */
static void plain_descs(const struct gemm *g, desc md[4])
{
    int64_t lda = gaps_in_a(g) ? 1 : g->lda, ldc = gaps_in_c(g) ? 1 : g->ldc;
    const dnnl_dims_t da = {g->M, g->K}, db = {g->K, g->N}, dc = {g->M, g->N};
    const dnnl_dims_t sa = {g->a_trans ? 1 : lda, g->a_trans ? lda : 1};
    const dnnl_dims_t sb = {g->b_trans ? 1 : g->ldb, g->b_trans ? g->ldb : 1};
    const dnnl_dims_t sc = {ldc, 1};
    const dnnl_dims_t dv = {1, g->N}, sv = {g->N, 1};
    dnnl_data_type_t in = g->bf16 ? dnnl_bf16 : dnnl_f32;
    desc_make(&md[0], da, sa, in);
    desc_make(&md[1], db, sb, in);
    desc_make(&md[2], dc, sc, gemm_c_is_f32(g) ? dnnl_f32 : in);
    desc_make(&md[3], dv, sv, in);
}

/* The product's description, with the sides that it packs in its own layouts. */
static dnnl_primitive_desc_t product_desc(struct onednn_shared *d, const struct gemm *g,
                                          const desc plain[4])
{
    const dnnl_dims_t da = {g->M, g->K}, db = {g->K, g->N};
    dnnl_data_type_t in = g->bf16 ? dnnl_bf16 : dnnl_f32;
    desc md[4] = {plain[0], plain[1], plain[2], plain[3]};
    dnnl_primitive_attr_t attr = attr_make(g->accumulate);
    dnnl_primitive_desc_t pd;
    if (packs_a(g))
        desc_make_any(&md[0], da, in);
    if (packs_b(g))
        desc_make_any(&md[1], db, in);
    prim_desc(&pd, d->engine, md, g->bias != NULL, attr);
    if (packs_a(g))
        desc_drop(&md[0]);
    if (packs_b(g))
        desc_drop(&md[1]);
    DNNL(dnnl_primitive_attr_destroy(attr));
    return pd;
}

void product_make(struct product *e, struct onednn_shared *d, const struct gemm *g)
{
    desc plain[4];
    plain_descs(g, plain);
    dnnl_primitive_desc_t pd = product_desc(d, g, plain);
    DNNL(dnnl_primitive_create(&e->prim, pd));
    const_desc pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    const_desc a = dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0);
    const_desc b = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    size_t n_bytes = round_pad(desc_bytes(pad));
    e->dense = n_bytes;
    if (gaps_in_a(g))
        n_bytes += round_pad((size_t)g->K * a_size(g));
    if (gaps_in_c(g))
        n_bytes += round_pad((size_t)g->M * c_size(g));
    packing_make(d, &e->pack_a, desc_ref(&plain[0]), a, &n_bytes);
    packing_make(d, &e->pack_b, desc_ref(&plain[1]), b, &n_bytes);
    grow_pad(d, n_bytes);
    e->pad = memory_make(d, pad);
    e->a = memory_make(d, a);
    e->b = memory_make(d, b);
    e->c = memory_make(d, desc_ref(&plain[2]));
    e->bias = memory_make(d, desc_ref(&plain[3]));
    DNNL(dnnl_primitive_desc_destroy(pd));
    for (int i = 0; i < 4; i++)
        desc_drop(&plain[i]);
    e->g = *g;
}

static void packing_drop(struct packing *k)
{
    if (!k->reorder)
        return;
    dnnl_primitive_destroy(k->reorder);
    dnnl_memory_destroy(k->from);
}

void product_drop(struct product *e)
{
    dnnl_primitive_destroy(e->prim);
    dnnl_memory_destroy(e->a);
    dnnl_memory_destroy(e->b);
    dnnl_memory_destroy(e->c);
    dnnl_memory_destroy(e->bias);
    dnnl_memory_destroy(e->pad);
    packing_drop(&e->pack_a);
    packing_drop(&e->pack_b);
}

/* oneDNN's interface has no const. */
static void handle_set(dnnl_memory_t m, const void *p)
{
    union {
        const void *in;
        void *out;
    } u = {p};
    DNNL(dnnl_memory_set_data_handle(m, u.out));
}

/* Give memory m the values at p, packed first where the primitive wants that. */
static void side_set(struct onednn_shared *d, const struct packing *k, dnnl_memory_t m,
                     const void *p)
{
    if (!k->reorder) {
        handle_set(m, p);
        return;
    }
    handle_set(k->from, p);
    handle_set(m, (char *)d->pad + k->at);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, k->from}, {DNNL_ARG_TO, m}};
    DNNL(dnnl_primitive_execute(k->reorder, d->stream, 2, args));
}

void product_run(const struct product *e, struct onednn_shared *d, const struct gemm *g,
                 const void *A, const void *B, void *C)
{
    bool a_gaps = gaps_in_a(g), c_gaps = gaps_in_c(g);
    char *dense = a_gaps || c_gaps ? (char *)d->pad + e->dense : NULL;
    if (a_gaps)
        copy_vector(dense, 1, A, g->lda, g->K, a_size(g));
    if (c_gaps && g->accumulate)
        copy_vector(dense, 1, C, g->ldc, g->M, c_size(g));
    side_set(d, &e->pack_a, e->a, a_gaps ? dense : A);
    side_set(d, &e->pack_b, e->b, B);
    handle_set(e->c, c_gaps ? dense : C);
    handle_set(e->pad, d->pad);
    if (g->bias)
        handle_set(e->bias, g->bias);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, e->a},
                                    {DNNL_ARG_WEIGHTS, e->b},
                                    {DNNL_ARG_DST, e->c},
                                    {DNNL_ARG_SCRATCHPAD, e->pad},
                                    {DNNL_ARG_BIAS, e->bias}};
    DNNL(dnnl_primitive_execute(e->prim, d->stream, g->bias ? 5 : 4, args));
    DNNL(dnnl_stream_wait(d->stream));
    if (c_gaps)
        copy_vector(C, g->ldc, dense, 1, g->M, c_size(g));
}

#else
typedef int onednn_product_is_not_built; /* a file may not be empty */
#endif
