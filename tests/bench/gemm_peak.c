/* The rate of bare matrix products: what a training step is measured against.
 *
 *     gemm_peak fp32|bf16 THREADS [TOKENS] [REPEATS]
 *
 * oneDNN's matmul on the shapes of GPT-2 124M (forward, gradient of x, gradient of W into fp32),
 * inputs in the layout that the library likes best (packed before the clock starts), and in fp32,
 * which bf16 can be widened to, its sgemm as well, which some machines run faster.  Random values,
 * since constant ones let a chip run cooler and faster.  Prints a line a product and last
 * "peak GFLOPS"; "skip REASON" where there is nothing to measure.  Calls the library directly: it
 * has to be independent of what it judges. */
#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_ONEDNN
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#define DNNL(call)                                                                                 \
    do {                                                                                           \
        dnnl_status_t st_ = (call);                                                                \
        if (st_ != dnnl_success) {                                                                 \
            printf("skip oneDNN: %s: status %d\n", #call, (int)st_);                               \
            exit(0);                                                                               \
        }                                                                                          \
    } while (0)

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc;
typedef const_dnnl_memory_desc_t const_desc;

static void desc_make(desc *d, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    DNNL(dnnl_memory_desc_create_with_tag(d, 2, dims, type, tag));
}

static void prim_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const desc d[3])
{
    DNNL(dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], NULL, d[2], NULL));
}

static void desc_drop(desc *d)
{
    DNNL(dnnl_memory_desc_destroy(*d));
}
#else
typedef dnnl_memory_desc_t desc;
typedef const dnnl_memory_desc_t *const_desc;

static void desc_make(desc *d, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    DNNL(dnnl_memory_desc_init_by_tag(d, 2, dims, type, tag));
}

static void prim_desc(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const desc d[3])
{
    dnnl_matmul_desc_t op;
    DNNL(dnnl_matmul_desc_init(&op, &d[0], &d[1], NULL, &d[2]));
    DNNL(dnnl_primitive_desc_create(out, &op, NULL, engine, NULL));
}

static void desc_drop(desc *d)
{
    (void)d;
}
#endif

struct lib {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint64_t random;
};

/* Every half of a word is a bf16 of about ±0.01, and two of them are an fp32 as small. */
static void fill(struct lib *l, void *p, size_t n_bytes)
{
    uint16_t *half = p;
    for (size_t i = 0; i < n_bytes / 2; i++) {
        l->random = l->random * 6364136223846793005ull + 1442695040888963407ull;
        half[i] = (uint16_t)(0x3c00u | ((l->random >> 33) & 0x80ffu));
    }
}

static dnnl_memory_t memory(struct lib *l, dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    dnnl_memory_t m;
    void *p;
    const_desc d = dnnl_primitive_desc_query_md(pd, what, 0);
    DNNL(dnnl_memory_create(&m, d, l->engine, DNNL_MEMORY_ALLOCATE));
    DNNL(dnnl_memory_get_data_handle(m, &p));
    fill(l, p, dnnl_memory_desc_get_size(d));
    return m;
}

/* Best GFLOP/s of repeats runs of C (M, N) = A (M, K) B (K, N). */
static double rate(struct lib *l, int64_t M, int64_t N, int64_t K, dnnl_data_type_t in,
                   dnnl_data_type_t out, int repeats)
{
    const dnnl_dims_t a = {M, K}, b = {K, N}, c = {M, N};
    desc d[3];
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t prim;
    desc_make(&d[0], a, in, dnnl_format_tag_any);
    desc_make(&d[1], b, in, dnnl_format_tag_any);
    desc_make(&d[2], c, out, dnnl_ab);
    prim_desc(&pd, l->engine, d);
    DNNL(dnnl_primitive_create(&prim, pd));
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, memory(l, pd, dnnl_query_src_md)},
                                    {DNNL_ARG_WEIGHTS, memory(l, pd, dnnl_query_weights_md)},
                                    {DNNL_ARG_DST, memory(l, pd, dnnl_query_dst_md)}};
    double best = 0;
    for (int i = 0; i <= repeats; i++) { /* the first is a warm-up */
        double start = clock_now_s();
        DNNL(dnnl_primitive_execute(prim, l->stream, 3, args));
        DNNL(dnnl_stream_wait(l->stream));
        double r = 2e-9 * (double)M * (double)N * (double)K / (clock_now_s() - start);
        if (i > 0 && r > best)
            best = r;
    }
    for (int i = 0; i < 3; i++) {
        dnnl_memory_destroy(args[i].memory);
        desc_drop(&d[i]);
    }
    dnnl_primitive_destroy(prim);
    dnnl_primitive_desc_destroy(pd);
    return best;
}

/* The same of sgemm, on plain fp32. */
static double sgemm_rate(struct lib *l, int64_t M, int64_t N, int64_t K, bool a_trans, int repeats)
{
    float *side[3];
    const int64_t n_elem[3] = {M * K, K * N, M * N};
    for (int i = 0; i < 3; i++) {
        side[i] = malloc((size_t)n_elem[i] * sizeof(float));
        if (!side[i]) {
            printf("skip out of memory\n");
            exit(0);
        }
        fill(l, side[i], (size_t)n_elem[i] * sizeof(float));
    }
    double best = 0;
    for (int i = 0; i <= repeats; i++) { /* the first is a warm-up */
        double start = clock_now_s();
        DNNL(dnnl_sgemm(a_trans ? 'T' : 'N', 'N', M, N, K, 1.0f, side[0], a_trans ? M : K, side[1],
                        N, 0.0f, side[2], N));
        double r = 2e-9 * (double)M * (double)N * (double)K / (clock_now_s() - start);
        if (i > 0 && r > best)
            best = r;
    }
    for (int i = 0; i < 3; i++)
        free(side[i]);
    return best;
}

static double measure_type(struct lib *l, bool bf16, int64_t tokens, int repeats)
{
    static const int64_t shape[][2] = {
        {2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768}};
    dnnl_data_type_t in = bf16 ? dnnl_bf16 : dnnl_f32;
    double best = 0;
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++) {
        int64_t n_out = shape[i][0], n_in = shape[i][1];
        double r[6] = {rate(l, tokens, n_out, n_in, in, in, repeats),
                       rate(l, tokens, n_in, n_out, in, in, repeats),
                       rate(l, n_out, n_in, tokens, in, dnnl_f32, repeats)};
        printf("# %s %5lld x %4lld: y %.0f, dx %.0f, dW %.0f GFLOP/s", bf16 ? "bf16" : "fp32",
               (long long)n_out, (long long)n_in, r[0], r[1], r[2]);
        if (!bf16) {
            r[3] = sgemm_rate(l, tokens, n_out, n_in, false, repeats);
            r[4] = sgemm_rate(l, tokens, n_in, n_out, false, repeats);
            r[5] = sgemm_rate(l, n_out, n_in, tokens, true, repeats);
            printf(", by sgemm %.0f, %.0f, %.0f", r[3], r[4], r[5]);
        }
        printf("\n");
        for (int k = 0; k < 6; k++)
            best = r[k] > best ? r[k] : best;
    }
    return best;
}

/* Sides in bf16 can be widened, and there are machines that multiply fp32 faster. */
static double measure(struct lib *l, bool bf16, int64_t tokens, int repeats)
{
    double fp32 = measure_type(l, false, tokens, repeats);
    double own = bf16 ? measure_type(l, true, tokens, repeats) : fp32;
    return own > fp32 ? own : fp32;
}

int main(int argc, char **argv)
{
    bool bf16 = argc > 1 && strcmp(argv[1], "bf16") == 0;
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    int64_t tokens = argc > 3 ? atoll(argv[3]) : 1024;
    int repeats = argc > 4 ? atoi(argv[4]) : 3;
    if (threads < 1 || tokens < 1 || repeats < 1 || (!bf16 && strcmp(argv[1], "fp32") != 0)) {
        fprintf(stderr, "usage: gemm_peak fp32|bf16 THREADS [TOKENS] [REPEATS]\n");
        return 2;
    }
    struct lib l = {.random = 1};
    omp_set_num_threads(threads);
    DNNL(dnnl_engine_create(&l.engine, dnnl_cpu, 0));
    DNNL(dnnl_stream_create(&l.stream, l.engine, dnnl_stream_default_flags));
    printf("name oneDNN %d.%d.%d\n", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
    printf("peak %.1f\n", measure(&l, bf16, tokens, repeats));
    dnnl_stream_destroy(l.stream);
    dnnl_engine_destroy(l.engine);
    return 0;
}
#else
int main(void)
{
    printf("skip this build has no oneDNN\n");
    return 0;
}
#endif
