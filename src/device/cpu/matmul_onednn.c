/* Matrix products by oneDNN 2.x or 3.x.  A product is made once a shape and kept. */
#ifdef HAVE_ONEDNN
#include "device/cpu/onednn.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* ENTRIES shapes at most, then all are forgotten: a generator's growing T must not fill memory. */
enum { BUCKETS = 256, ENTRIES = 1024 };

struct entry {
    struct product product;
    struct entry *next;
};

/* oneDNN has two programs for fp32.  Its matmul reads sides as they lie: no copy, but it turns a
 * transposed A anew for each tile.  Its sgemm copies both sides once, as its kernel wants them.
 * Where a core multiplies two vectors of 512 bits a clock, matmul's loads are the bottleneck and
 * sgemm is ahead for all shapes: 3-15 % on an Emerald Rapids with 2.6, up to 60 % in gradients of
 * small weights.  Elsewhere those alone are sgemm's. */
enum { SGEMM_MIN = 16, SGEMM_SMALL = 1 << 28 };
enum sgemm_use { SGEMM_NEVER, SGEMM_SMALL_GRADIENTS, SGEMM_ALWAYS };

static enum sgemm_use sgemm_use(int isa)
{
#ifdef __x86_64__
    return isa >= CPU_ISA_AVX512 && __builtin_cpu_is("intel") ? SGEMM_ALWAYS
                                                              : SGEMM_SMALL_GRADIENTS;
#else
    (void)isa;
    return SGEMM_NEVER; /* a plain loop there */
#endif
}

struct onednn {
    struct onednn_shared shared;
    int n_threads;
    bool bf16;
    enum sgemm_use sgemm;
    struct entry *bucket[BUCKETS]; /* owned */
    int n_entries;
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
    d->n_threads = d->shared.n_threads = n_threads;
    d->shared.build = cpu_build(isa);
    d->shared.in_place = isa >= CPU_ISA_AVX512;
    d->bf16 = isa >= CPU_ISA_AVX512_BF16;
    d->sgemm = sgemm_use(isa);
    dnnl_status_t st = dnnl_engine_create(&d->shared.engine, dnnl_cpu, 0);
    if (st == dnnl_success)
        st = dnnl_stream_create(&d->shared.stream, d->shared.engine, dnnl_stream_default_flags);
    void *self = d;
    if (st != dnnl_success) {
        onednn_destroy(&self);
        FAIL(ERR_RESOURCE, "oneDNN has no CPU engine here: status %d", (int)st);
    }
    *state = self;
    return ERR_OK;
}

static void forget(struct onednn *d)
{
    for (int i = 0; i < BUCKETS; i++) {
        for (struct entry *e = d->bucket[i], *next; e; e = next) {
            next = e->next;
            product_drop(&e->product);
            free(e);
        }
        d->bucket[i] = NULL;
    }
    d->n_entries = 0;
}

static bool same(const struct gemm *a, const struct gemm *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K && a->a_trans == b->a_trans &&
           a->b_trans == b->b_trans && a->accumulate == b->accumulate && a->wide_c == b->wide_c &&
           a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc && a->bf16 == b->bf16 &&
           !a->bias == !b->bias;
}

static const struct product *find(struct onednn *d, const struct gemm *g)
{
    uint64_t h = ((uint64_t)g->M * 31 + (uint64_t)g->N) * 31 + (uint64_t)g->K;
    h = (h << 4 | (uint64_t)g->a_trans << 3 | (uint64_t)g->b_trans << 2 |
         (uint64_t)g->accumulate << 1 | g->bf16) *
        0x9E3779B97F4A7C15ull;
    uint64_t at = h >> 56;
    for (struct entry *e = d->bucket[at]; e; e = e->next)
        if (same(&e->product.g, g))
            return &e->product;
    if (d->n_entries == ENTRIES)
        forget(d);
    struct entry *e = calloc(1, sizeof *e);
    if (!e)
        FATAL("out of memory for a matrix product's description");
    product_make(&e->product, &d->shared, g);
    e->next = d->bucket[at];
    d->bucket[at] = e;
    d->n_entries++;
    return &e->product;
}

static bool by_sgemm(const struct onednn *d, const struct gemm *g)
{
    if (g->bf16 || g->M < SGEMM_MIN || g->N < SGEMM_MIN || g->K < SGEMM_MIN)
        return false;
    return d->sgemm == SGEMM_ALWAYS || (d->sgemm == SGEMM_SMALL_GRADIENTS && g->a_trans &&
                                        !g->bias && g->M * g->N * g->K < SGEMM_SMALL);
}

/* Its sums begin with the bias, or with C. */
static void sgemm_run(const struct gemm *g, int n_threads, const float *A, const float *B, float *C)
{
    if (g->bias) {
#pragma omp parallel for schedule(static) num_threads(n_threads)
        for (int64_t i = 0; i < g->M; i++)
            memcpy(C + i * g->ldc, g->bias, (size_t)g->N * sizeof *C);
    }
    DNNL(dnnl_sgemm(g->a_trans ? 'T' : 'N', g->b_trans ? 'T' : 'N', g->M, g->N, g->K, 1.0f, A,
                    g->lda, B, g->ldb, g->accumulate || g->bias ? 1.0f : 0.0f, C, g->ldc));
}

static void onednn_run(void *state, const struct gemm *g, const void *A, const void *B, void *C)
{
    struct onednn *d = state;
    /* threads cost more than a small product; whatever the shape was made for it has to run with */
    bool small = (double)g->M * (double)g->N * (double)g->K < 1e6;
    int n_threads = small ? 1 : d->n_threads;
    omp_set_num_threads(n_threads);
    if (by_sgemm(d, g))
        sgemm_run(g, n_threads, A, B, C);
    else
        product_run(find(d, g), &d->shared, g, A, B, C);
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
    if (d->shared.stream)
        dnnl_stream_destroy(d->shared.stream);
    if (d->shared.engine)
        dnnl_engine_destroy(d->shared.engine);
    cpu_free(d->shared.pad, d->shared.pad_bytes);
    free(d);
    *state = NULL;
}

const struct matmul_ops matmul_onednn_ops = {
    .name = "onednn",
    .create = onednn_create,
    .run = onednn_run,
    .destroy = onednn_destroy,
    .bf16 = onednn_bf16,
    .bias = true,
};
#else
typedef int matmul_onednn_is_not_built; /* a file may not be empty */
#endif
