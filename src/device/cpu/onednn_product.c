/* A matrix product by oneDNN for one shape.  Packed for it are the sides of large products, as its
 * kernels read them fastest, and vectors with gaps, which oneDNN 3.7 overlooks. */
#ifdef HAVE_ONEDNN
#include "device/cpu/onednn.h"

#include <string.h>

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
 * every tile; packing costs a pass over the side.  A B that is turned lies well as it is, so many
 * rows have to use it; so does that of a gradient in fp32 that is not wide. */
enum { PACK_M = 512, PACK_TURNED_M = 1024, PACK_ELEMS = 8 << 20 };

static bool packs_b(const struct gemm *g)
{
    bool narrow = !g->bf16 && g->a_trans && g->M >= g->N;
    return g->M >= (g->b_trans ? PACK_TURNED_M : PACK_M) && g->N >= 64 && g->K >= 64 &&
           g->N * g->K <= PACK_ELEMS && !narrow;
}

/* A large C of bf16 sides that is added to: where it is in no cache the library's kernels fetch it
 * one tile at a time and wait.  Strips that fit are made for themselves and added in one pass. */
enum { STRIP_FROM = 1 << 19, STRIP_ELEMS = 768 << 10, STRIP_ALIGN = 64 };

static int64_t strip_rows(const struct gemm *g)
{
    if (!g->bf16 || !g->accumulate || g->M * g->N < STRIP_FROM || g->M % STRIP_ALIGN != 0)
        return g->M;
    int64_t most = STRIP_ELEMS / g->N < g->M / 2 ? STRIP_ELEMS / g->N : g->M / 2;
    for (int64_t rows = most / STRIP_ALIGN * STRIP_ALIGN; rows > 0; rows -= STRIP_ALIGN)
        if (g->M % rows == 0)
            return rows;
    return g->M;
}

/* Turning A pays for itself where each of its elements is used often: in many columns of C or
 * strips, or, in bf16, whose pairs are otherwise put together for each, in tiles that are deep. */
static bool turns_a(const struct gemm *g)
{
    bool often = g->M <= g->N || strip_rows(g) < g->M || (g->bf16 && g->M <= 4 * g->K);
    return g->a_trans && often && packs_b(g) && g->M * g->K <= PACK_ELEMS &&
           (!g->bf16 || g->K % 2 == 0);
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

/* The description of the product of a strip, or of all, as it is made of packed sides. */
static dnnl_primitive_desc_t product_desc(struct onednn_shared *d, const struct product *e,
                                          const desc plain[4])
{
    const struct gemm *g = &e->g;
    const dnnl_dims_t da = {e->strip, g->K}, db = {g->K, g->N}, dc = {e->strip, g->N};
    const dnnl_dims_t sa = {g->K, 1}, sc = {g->N, 1};
    bool strips = e->strip < g->M;
    dnnl_data_type_t in = g->bf16 ? dnnl_bf16 : dnnl_f32;
    desc md[4] = {plain[0], plain[1], plain[2], plain[3]};
    dnnl_primitive_attr_t attr = attr_make(g->accumulate && !strips);
    dnnl_primitive_desc_t pd;
    if (e->turns_a)
        desc_make(&md[0], da, sa, in);
    if (packs_b(g))
        desc_make_any(&md[1], db, in);
    if (strips)
        desc_make(&md[2], dc, sc, dnnl_f32);
    prim_desc(&pd, d->engine, md, g->bias != NULL, attr);
    if (e->turns_a)
        desc_drop(&md[0]);
    if (packs_b(g))
        desc_drop(&md[1]);
    if (strips)
        desc_drop(&md[2]);
    DNNL(dnnl_primitive_attr_destroy(attr));
    return pd;
}

/* Where in the pad everything lies that the product needs beside the library's own scratchpad. */
static size_t places(struct product *e, struct onednn_shared *d, const desc plain[4],
                     dnnl_primitive_desc_t pd)
{
    const struct gemm *g = &e->g;
    const_desc pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    const_desc b = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    const struct cpu_side side = {.dtype = g->bf16 ? DTYPE_BF16 : DTYPE_F32,
                                  .K = g->K,
                                  .N = g->N,
                                  .ld = g->ldb,
                                  .turned = g->b_trans,
                                  .pair = g->bf16 ? 2 : 1};
    size_t n_bytes = 0;
    (void)onednn_place(&n_bytes, desc_bytes(pad));
    e->dense = n_bytes;
    if (gaps_in_a(g))
        (void)onednn_place(&n_bytes, (size_t)g->K * a_size(g));
    if (gaps_in_c(g))
        (void)onednn_place(&n_bytes, (size_t)g->M * c_size(g));
    if (e->turns_a)
        e->turned = onednn_place(&n_bytes, (size_t)(g->M * g->K) * a_size(g));
    if (e->strip < g->M)
        e->sums = onednn_place(&n_bytes, (size_t)(e->strip * g->N) * sizeof(float));
    packing_make(d, &e->pack_b, &side, desc_ref(&plain[1]), b, &n_bytes);
    return n_bytes;
}

void product_make(struct product *e, struct onednn_shared *d, const struct gemm *g)
{
    desc plain[4];
    struct gemm part = *g;
    e->g = *g;
    part.M = e->strip = strip_rows(g);
    e->turns_a = d->in_place && turns_a(g);
    plain_descs(&part, plain);
    dnnl_primitive_desc_t pd = product_desc(d, e, plain);
    DNNL(dnnl_primitive_create(&e->prim, pd));
    grow_pad(d, places(e, d, plain, pd));
    e->pad = onednn_memory(d, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    e->a = onednn_memory(d, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0));
    e->b = onednn_memory(d, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
    e->c = onednn_memory(d, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0));
    e->bias = onednn_memory(d, desc_ref(&plain[3]));
    DNNL(dnnl_primitive_desc_destroy(pd));
    for (int i = 0; i < 4; i++)
        desc_drop(&plain[i]);
}

void product_drop(struct product *e)
{
    dnnl_primitive_destroy(e->prim);
    dnnl_memory_destroy(e->a);
    dnnl_memory_destroy(e->b);
    dnnl_memory_destroy(e->c);
    dnnl_memory_destroy(e->bias);
    dnnl_memory_destroy(e->pad);
    packing_drop(&e->pack_b);
}

/* A where the primitive reads it. */
static const char *prepare_a(const struct product *e, struct onednn_shared *d, const struct gemm *g,
                             const void *A)
{
    char *pad = d->pad;
    if (gaps_in_a(g)) {
        copy_vector(pad + e->dense, 1, A, g->lda, g->K, a_size(g));
        return pad + e->dense;
    }
    if (!e->turns_a)
        return A;
    struct cpu_side s = {.from = A,
                         .to = pad + e->turned,
                         .dtype = g->bf16 ? DTYPE_BF16 : DTYPE_F32,
                         .K = g->K,
                         .N = g->M,
                         .ld = g->lda,
                         .pair = g->bf16 ? 2 : 1};
    s.rows = s.K / s.pair;
    d->build->pack_turned(&s, d->n_threads);
    return s.to;
}

static void execute(const struct product *e, struct onednn_shared *d, const struct gemm *g,
                    const void *A, void *C)
{
    onednn_handle(e->a, A);
    onednn_handle(e->c, C);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, e->a},
                                    {DNNL_ARG_WEIGHTS, e->b},
                                    {DNNL_ARG_DST, e->c},
                                    {DNNL_ARG_SCRATCHPAD, e->pad},
                                    {DNNL_ARG_BIAS, e->bias}};
    DNNL(dnnl_primitive_execute(e->prim, d->stream, g->bias ? 5 : 4, args));
    DNNL(dnnl_stream_wait(d->stream));
}

static void run_strips(const struct product *e, struct onednn_shared *d, const struct gemm *g,
                       const char *A, float *C)
{
    size_t step = a_size(g) * (size_t)(e->turns_a ? g->K : g->a_trans ? 1 : g->lda);
    float *sums = (float *)((char *)d->pad + e->sums);
    for (int64_t i = 0; i < g->M; i += e->strip) {
        execute(e, d, g, A + (size_t)i * step, sums);
        d->build->add_rows(C + i * g->ldc, g->ldc, sums, g->N, e->strip, g->N, d->n_threads);
    }
}

void product_run(const struct product *e, struct onednn_shared *d, const struct gemm *g,
                 const void *A, const void *B, void *C)
{
    bool c_gaps = gaps_in_c(g);
    char *dense = (char *)d->pad + e->dense;
    A = prepare_a(e, d, g, A);
    if (c_gaps && g->accumulate)
        copy_vector(dense, 1, C, g->ldc, g->M, c_size(g));
    packing_run(&e->pack_b, d, e->b, B);
    onednn_handle(e->pad, d->pad);
    if (g->bias)
        onednn_handle(e->bias, g->bias);
    if (e->strip < g->M)
        run_strips(e, d, g, A, C);
    else
        execute(e, d, g, A, c_gaps ? dense : C);
    if (c_gaps)
        copy_vector(C, g->ldc, dense, 1, g->M, c_size(g));
}

#else
typedef int onednn_product_is_not_built; /* a file may not be empty */
#endif
