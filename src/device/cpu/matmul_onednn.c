/* Matrix products by oneDNN 2.x or 3.x, plain row-major layouts.  A primitive is made once a
 * shape and kept; its scratchpad is one buffer of ours, as large as the largest wants.  Vectors
 * with gaps are copied behind it without them, because oneDNN 3.7 overlooks the gaps. */
#ifdef HAVE_ONEDNN
#include "device/cpu/cpu.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#define DNNL(call)                                                                                 \
    do {                                                                                           \
        dnnl_status_t st_ = (call);                                                                \
        if (st_ != dnnl_success)                                                                   \
            FATAL("oneDNN: %s failed with status %d", #call, (int)st_);                            \
    } while (0)

struct entry {
    struct gemm g;
    dnnl_primitive_t prim;
    dnnl_memory_t a, b, c, bias, pad;
    size_t dense; /* where in the scratchpad the vector is without its gaps */
    struct entry *next;
};

/* ENTRIES shapes at most, then all are forgotten: a generator's growing T must not fill memory. */
enum { BUCKETS = 256, ENTRIES = 1024 };

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int n_threads;
    bool bf16;
    struct entry *bucket[BUCKETS]; /* owned */
    int n_entries;
    void *pad; /* owned */
    size_t pad_bytes;
};

#ifdef __x86_64__
/* oneDNN takes a limit once, before its first primitive, and for the whole process. */
static int limit_isa(int isa)
{
    static const dnnl_cpu_isa_t limit[] = {
        [CPU_ISA_BASE] = dnnl_cpu_isa_sse41,
        [CPU_ISA_AVX2] = dnnl_cpu_isa_avx2,
        [CPU_ISA_AVX512] = dnnl_cpu_isa_avx512_core,
        [CPU_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16,
        [CPU_ISA_AMX] = dnnl_cpu_isa_avx512_core_amx,
    };
    (void)dnnl_set_max_cpu_isa(limit[isa]);
    unsigned have = (unsigned)dnnl_get_effective_cpu_isa();
    int has = CPU_ISA_AMX;
    while (has > CPU_ISA_BASE && (have & limit[has]) != (unsigned)limit[has])
        has--;
    if (has != isa)
        FAIL(ERR_RESOURCE, "oneDNN already works with %s in this process, not with %s",
             device_isa_name(has), device_isa_name(isa));
    return ERR_OK;
}
#else
static int limit_isa(int isa)
{
    (void)isa;
    return ERR_OK;
}
#endif

static void onednn_destroy(void **state);

static int onednn_create(int n_threads, int isa, void **state)
{
    TRY(limit_isa(isa));
    struct onednn *d = calloc(1, sizeof *d);
    if (!d)
        FAIL(ERR_RESOURCE, "out of memory for oneDNN's state");
    d->n_threads = n_threads;
    d->bf16 = isa >= CPU_ISA_AVX512_BF16;
    dnnl_status_t st = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (st == dnnl_success)
        st = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    void *self = d;
    if (st != dnnl_success) {
        onednn_destroy(&self);
        FAIL(ERR_RESOURCE, "oneDNN has no CPU engine here: status %d", (int)st);
    }
    *state = self;
    return ERR_OK;
}

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc;
typedef const_dnnl_memory_desc_t const_desc;

static void desc_make(desc *d, const dnnl_dims_t dims, const dnnl_dims_t strides,
                      dnnl_data_type_t type)
{
    DNNL(dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides));
}

static void desc_drop(desc *d)
{
    DNNL(dnnl_memory_desc_destroy(*d));
}

static const_desc desc_ref(const desc *d)
{
    return *d;
}

static void prim_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const desc d[4], bool bias,
                      const_dnnl_primitive_attr_t attr)
{
    DNNL(
        dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], bias ? d[3] : NULL, d[2], attr));
}

static void append_sum(dnnl_post_ops_t ops)
{
    DNNL(dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef));
}

static size_t desc_bytes(const_desc d)
{
    return d ? dnnl_memory_desc_get_size(d) : 0;
}
#else
typedef dnnl_memory_desc_t desc;
typedef const dnnl_memory_desc_t *const_desc;

static void desc_make(desc *d, const dnnl_dims_t dims, const dnnl_dims_t strides,
                      dnnl_data_type_t type)
{
    DNNL(dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides));
}

static void desc_drop(desc *d)
{
    (void)d; /* a plain struct in 2.x */
}

static const_desc desc_ref(const desc *d)
{
    return d;
}

static void prim_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const desc d[4], bool bias,
                      const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    DNNL(dnnl_matmul_desc_init(&op, &d[0], &d[1], bias ? &d[3] : NULL, &d[2]));
    DNNL(dnnl_primitive_desc_create(out, &op, attr, engine, NULL));
}

static void append_sum(dnnl_post_ops_t ops)
{
    DNNL(dnnl_post_ops_append_sum(ops, 1.0f));
}

static size_t desc_bytes(const_desc d)
{
    return d ? dnnl_memory_desc_get_size(d) : 0;
}
#endif

/* Memory objects without memory: run() gives them theirs. */
static dnnl_memory_t memory_make(struct onednn *d, const_desc md)
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

static void grow_pad(struct onednn *d, size_t n_bytes)
{
    if (n_bytes <= d->pad_bytes)
        return;
    free(d->pad);
    if (posix_memalign(&d->pad, 4096, n_bytes) != 0)
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
    return g->bf16 && !g->accumulate ? 2 : 4;
}

/* n elements of `size` bytes that lie from_ld and to_ld elements apart. */
static void copy_vector(void *to, int64_t to_ld, const void *from, int64_t from_ld, int64_t n,
                        size_t size)
{
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)to + (size_t)(i * to_ld) * size,
               (const char *)from + (size_t)(i * from_ld) * size, size);
}

static void entry_make(struct onednn *d, struct entry *e, const struct gemm *g)
{
    int64_t lda = gaps_in_a(g) ? 1 : g->lda, ldc = gaps_in_c(g) ? 1 : g->ldc;
    const dnnl_dims_t da = {g->M, g->K}, db = {g->K, g->N}, dc = {g->M, g->N};
    const dnnl_dims_t sa = {g->a_trans ? 1 : lda, g->a_trans ? lda : 1};
    const dnnl_dims_t sb = {g->b_trans ? 1 : g->ldb, g->b_trans ? g->ldb : 1};
    const dnnl_dims_t sc = {ldc, 1};
    const dnnl_dims_t dv = {1, g->N}, sv = {g->N, 1};
    dnnl_data_type_t in = g->bf16 ? dnnl_bf16 : dnnl_f32;
    desc md[4];
    desc_make(&md[0], da, sa, in);
    desc_make(&md[1], db, sb, in);
    desc_make(&md[2], dc, sc, g->accumulate ? dnnl_f32 : in);
    desc_make(&md[3], dv, sv, in);
    dnnl_primitive_attr_t attr = attr_make(g->accumulate);
    dnnl_primitive_desc_t pd;
    prim_desc(&pd, d->engine, md, g->bias != NULL, attr);
    DNNL(dnnl_primitive_create(&e->prim, pd));
    const_desc pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    e->dense = (desc_bytes(pad) + 63) / 64 * 64;
    size_t n_dense = gaps_in_a(g) ? (size_t)g->K * a_size(g) : 0;
    if (gaps_in_c(g))
        n_dense = (size_t)g->M * c_size(g);
    grow_pad(d, e->dense + n_dense);
    e->pad = memory_make(d, pad);
    e->a = memory_make(d, desc_ref(&md[0]));
    e->b = memory_make(d, desc_ref(&md[1]));
    e->c = memory_make(d, desc_ref(&md[2]));
    e->bias = memory_make(d, desc_ref(&md[3]));
    DNNL(dnnl_primitive_desc_destroy(pd));
    DNNL(dnnl_primitive_attr_destroy(attr));
    for (int i = 0; i < 4; i++)
        desc_drop(&md[i]);
    e->g = *g;
}

static void forget(struct onednn *d)
{
    for (int i = 0; i < BUCKETS; i++) {
        for (struct entry *e = d->bucket[i], *next; e; e = next) {
            next = e->next;
            dnnl_primitive_destroy(e->prim);
            dnnl_memory_destroy(e->a);
            dnnl_memory_destroy(e->b);
            dnnl_memory_destroy(e->c);
            dnnl_memory_destroy(e->bias);
            dnnl_memory_destroy(e->pad);
            free(e);
        }
        d->bucket[i] = NULL;
    }
    d->n_entries = 0;
}

static bool same(const struct gemm *a, const struct gemm *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K && a->a_trans == b->a_trans &&
           a->b_trans == b->b_trans && a->accumulate == b->accumulate && a->lda == b->lda &&
           a->ldb == b->ldb && a->ldc == b->ldc && a->bf16 == b->bf16 && !a->bias == !b->bias;
}

static struct entry *find(struct onednn *d, const struct gemm *g)
{
    uint64_t h = ((uint64_t)g->M * 31 + (uint64_t)g->N) * 31 + (uint64_t)g->K;
    h = (h << 4 | (uint64_t)g->a_trans << 3 | (uint64_t)g->b_trans << 2 |
         (uint64_t)g->accumulate << 1 | g->bf16) *
        0x9E3779B97F4A7C15ull;
    uint64_t at = h >> 56;
    for (struct entry *e = d->bucket[at]; e; e = e->next)
        if (same(&e->g, g))
            return e;
    if (d->n_entries == ENTRIES)
        forget(d);
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        FATAL("out of memory for a matrix product's description");
    entry_make(d, e, g);
    e->next = d->bucket[at];
    d->bucket[at] = e;
    d->n_entries++;
    return e;
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

static void onednn_run(void *state, const struct gemm *g, const void *A, const void *B, void *C)
{
    struct onednn *d = state;
    /* threads cost more than a small product; whatever the shape was made for it has to run with */
    bool small = (double)g->M * (double)g->N * (double)g->K < 1e6;
    omp_set_num_threads(small ? 1 : d->n_threads);
    struct entry *e = find(d, g);
    bool a_gaps = gaps_in_a(g), c_gaps = gaps_in_c(g);
    char *dense = a_gaps || c_gaps ? (char *)d->pad + e->dense : NULL;
    if (a_gaps)
        copy_vector(dense, 1, A, g->lda, g->K, a_size(g));
    if (c_gaps && g->accumulate)
        copy_vector(dense, 1, C, g->ldc, g->M, c_size(g));
    handle_set(e->a, a_gaps ? dense : A);
    handle_set(e->b, B);
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

static size_t onednn_bytes(const void *state)
{
    return ((const struct onednn *)state)->pad_bytes;
}

static bool onednn_bf16(const void *state)
{
    return ((const struct onednn *)state)->bf16;
}

static void onednn_destroy(void **state)
{
    struct onednn *d = *state;
    if (!d)
        return;
    forget(d);
    if (d->stream)
        dnnl_stream_destroy(d->stream);
    if (d->engine)
        dnnl_engine_destroy(d->engine);
    free(d->pad);
    free(d);
    *state = NULL;
}

const struct matmul_ops matmul_onednn_ops = {
    .name = "onednn",
    .create = onednn_create,
    .run = onednn_run,
    .destroy = onednn_destroy,
    .work_bytes = onednn_bytes,
    .bf16 = onednn_bf16,
    .bias = true,
};
#else
typedef int matmul_onednn_is_not_built; /* a file may not be empty */
#endif
