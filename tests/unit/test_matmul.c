/* Every matrix product that was built in, on every instruction set of this machine, against a
 * plain loop in fp64. */
/* RUN: -n 1 */
/* RUN: -n 1 ONEDNN_MAX_CPU_ISA=AVX2 */
#include "../check.h"
#include "device/cpu/cpu.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t seed = 1;

static float noise(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) * 0x1p-23f - 1.0f;
}

static float *noise_array(int64_t n)
{
    float *p = malloc((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = noise();
    return p;
}

/* What C must be without a bias: a plain loop; cells between the rows must not change. */
static double *expected(const struct gemm *g, const float *A, const float *B, const float *C)
{
    double *want = malloc((size_t)(g->M * g->ldc) * sizeof *want);
    for (int64_t i = 0; i < g->M; i++)
        for (int64_t j = 0; j < g->ldc; j++) {
            double sum = j < g->N && !g->accumulate ? 0.0 : (double)C[i * g->ldc + j];
            for (int64_t k = 0; j < g->N && k < g->K; k++)
                sum += (double)A[g->a_trans ? k * g->lda + i : i * g->lda + k] *
                       B[g->b_trans ? j * g->ldb + k : k * g->ldb + j];
            want[i * g->ldc + j] = sum;
        }
    return want;
}

/* Largest error of C in units of sqrt(K). */
static double product_error(const struct matmul_ops *ops, void *state, const struct gemm *g)
{
    int64_t a_rows = g->a_trans ? g->K : g->M, b_rows = g->b_trans ? g->N : g->K;
    int64_t n = g->M * g->ldc;
    float *A = noise_array(a_rows * g->lda), *B = noise_array(b_rows * g->ldb);
    float *C = noise_array(n), *old = malloc((size_t)n * sizeof *old);
    memcpy(old, C, (size_t)n * sizeof *old);
    double *want = expected(g, A, B, C), worst = 0.0;
    for (int pass = 0; pass < 2; pass++) { /* the second call finds everything prepared */
        memcpy(C, old, (size_t)n * sizeof *old);
        ops->run(state, g, A, B, C);
        for (int64_t i = 0; i < n; i++) {
            const float *bias = i % g->ldc < g->N ? g->bias : NULL;
            double w = want[i] + (bias ? (double)bias[i % g->ldc] : 0.0);
            double e = fabs(w - C[i]) / sqrt((double)g->K);
            worst = e <= worst ? worst : isnan(e) ? INFINITY : e;
        }
    }
    free(A);
    free(B);
    free(C);
    free(old);
    free(want);
    return worst;
}

static const int64_t shapes[][3] = {{1, 1, 1},    {1, 7, 3},      {5, 1, 9},     {3, 17, 31},
                                    {13, 65, 33}, {96, 64, 128},  {97, 33, 257}, {100, 70, 300},
                                    {2, 1030, 5}, {130, 40, 520}, {1, 1, 70},    {70, 1, 1},
                                    {1, 40, 33},  {130, 1, 520}};
enum { WIDEST = 1030 };

/* What a library's product prepares for: B packed, as it lies and turned, with and without A; and
 * strips of C. */
static const int64_t prepared[][3] = {
    {515, 70, 71}, {512, 600, 66}, {1030, 100, 69}, {1024, 576, 34}, {768, 704, 33}};

/* What is widened in more than one tile: of K, of N, of M, which is cut earlier where B is small,
 * and of two of them. */
static const int64_t cut[][3] = {{9, 11, 4100},   {2, 1030, 4096}, {1030, 2, 4096}, {200, 1026, 40},
                                 {16390, 130, 2}, {1700, 1, 5000}, {2, 2000, 4200}};

static bool prepares(const struct matmul_ops *ops)
{
    return strcmp(ops->name, "onednn") == 0;
}

static void prepared_shapes(const struct matmul_ops *ops, void *state, bool wide)
{
    for (size_t i = 0; prepares(ops) && i < sizeof prepared / sizeof *prepared; i++)
        for (int bits = 0; bits < 8; bits++) {
            const int64_t *z = prepared[i];
            struct gemm g = {.M = z[0],
                             .N = z[1],
                             .K = z[2],
                             .a_trans = bits & 1,
                             .b_trans = bits & 2,
                             .accumulate = bits & 4};
            int64_t more = wide ? 3 : 0;
            g.lda = (g.a_trans ? g.M : g.K) + more;
            g.ldb = (g.b_trans ? g.K : g.N) + more;
            g.ldc = g.N + more;
            double e = product_error(ops, state, &g);
            check_that(e < 4e-6, __FILE__, __LINE__, "prepared M %d N %d K %d bits %d: error %g",
                       (int)g.M, (int)g.N, (int)g.K, bits, e);
        }
}

static void all_shapes(const struct matmul_ops *ops, int isa, int n_threads)
{
    void *state;
    int rc = ops->create(n_threads, isa, &state);
    CHECK(rc == ERR_OK);
    if (rc != ERR_OK)
        return;
    float *bias = noise_array(WIDEST);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int bits = 0; bits < 32; bits++) {
            if (bits & 16 && (bits & 4 || !ops->bias))
                continue;
            struct gemm g = {.M = shapes[i][0],
                             .N = shapes[i][1],
                             .K = shapes[i][2],
                             .a_trans = bits & 1,
                             .b_trans = bits & 2,
                             .accumulate = bits & 4,
                             .bias = bits & 16 ? bias : NULL};
            int64_t more = bits & 8 ? 3 : 0;
            g.lda = (g.a_trans ? g.M : g.K) + more;
            g.ldb = (g.b_trans ? g.K : g.N) + more;
            g.ldc = g.N + more;
            double e = product_error(ops, state, &g);
            check_that(e < 4e-6, __FILE__, __LINE__, "%s %s: M %d N %d K %d bits %d: error %g",
                       ops->name, device_isa_name(isa), (int)g.M, (int)g.N, (int)g.K, bits, e);
        }
    free(bias);
    prepared_shapes(ops, state, n_threads == 2);
    ops->destroy(&state);
    CHECK(state == NULL);
}

static enum dtype dtype_of(const struct gemm *g)
{
    return g->f16 ? DTYPE_F16 : DTYPE_BF16;
}

/* n values that the dtype holds, as floats; and as such. */
static float *half_noise(const struct gemm *g, int64_t n, uint16_t **out)
{
    float *p = noise_array(n);
    *out = malloc((size_t)n * sizeof **out);
    for (int64_t i = 0; i < n; i++) {
        (*out)[i] = half_narrow(dtype_of(g), p[i]);
        p[i] = half_widen(dtype_of(g), (*out)[i]);
    }
    return p;
}

static double got_value(const struct gemm *g, const void *C, int64_t at)
{
    if (g->accumulate)
        return ((const float *)C)[at];
    return half_widen(dtype_of(g), ((const uint16_t *)C)[at]);
}

/* bf16 or fp16 in, and out unless it accumulates: fp32's error of the sum, and a rounding (2^-8 or
 * 2^-11) of the product and of the result, as oneDNN adds a bias behind some of its products. */
static void half_product(struct device *d, struct gemm *g)
{
    int64_t n = g->M * g->ldc;
    uint16_t *a, *b, *c, *v;
    float *A = half_noise(g, (g->a_trans ? g->K : g->M) * g->lda, &a), *C = half_noise(g, n, &c);
    float *B = half_noise(g, (g->b_trans ? g->N : g->K) * g->ldb, &b), *V = half_noise(g, g->N, &v);
    double *want = expected(g, A, B, C);
    void *to = g->accumulate ? (void *)C : (void *)c;
    if (!g->accumulate)
        g->bias = v;
    void *room = aligned_alloc(64, cpu_product_room(d, g));
    cpu_product(d, g, a, b, to, room);
    free(room);
    for (int64_t i = 0; i < n; i++) {
        double w = want[i] + (g->bias && i % g->ldc < g->N ? (double)V[i % g->ldc] : 0.0);
        double e = fabs(got_value(g, to, i) - w);
        double u = g->f16 ? 0x1p-11 : 0x1p-8;
        double round = g->accumulate ? 0.0 : u * (fabs(w) + fabs(want[i]));
        check_that(e <= round + 4e-6 * sqrt((double)g->K), __FILE__, __LINE__,
                   "M %d N %d K %d at %d: error %g of %g", (int)g->M, (int)g->N, (int)g->K, (int)i,
                   e, w);
    }
    free(A), free(B), free(C), free(V), free(a), free(b), free(c), free(v), free(want);
}

static void all_halves(const struct matmul_ops *ops, int isa, int n_threads)
{
    struct device *d;
    int rc = device_open_cpu(n_threads, isa, ops->name, &d);
    CHECK(rc == ERR_OK);
    if (rc != ERR_OK)
        return;
    bool native = strcmp(ops->name, "onednn") == 0 && isa >= CPU_ISA_AVX512_BF16;
    CHECK(device_native_bf16(d) == native);
    char line[160];
    CHECK_HAS(device_describe(d, line, sizeof line), native ? "native" : "widened");
    int64_t n_small = sizeof shapes / sizeof *shapes, n_cut = sizeof cut / sizeof *cut;
    int n_bits = strcmp(ops->name, "plain") == 0 ? 32 : 16; /* fp16 is widened around any library */
    bool cuts = n_threads == 2 && isa == device_isa_best(); /* the same whatever multiplies */
    for (int64_t i = 0; i < n_small + (cuts ? n_cut : 0); i++)
        for (int bits = 0; bits < n_bits; bits++) {
            if (i >= n_small && !(bits & 8))
                continue;
            const int64_t *z = i < n_small ? shapes[i] : cut[i - n_small];
            struct gemm g = {.M = z[0], .N = z[1], .K = z[2], .f16 = bits & 16};
            g.bf16 = !g.f16;
            g.a_trans = bits & 1;
            g.b_trans = bits & 2;
            g.accumulate = bits & 4;
            int64_t more = bits & 8 ? 3 : 0;
            g.lda = (g.a_trans ? g.M : g.K) + more;
            g.ldb = (g.b_trans ? g.K : g.N) + more;
            g.ldc = g.N + more;
            half_product(d, &g);
        }
    for (size_t i = 0; native && i < sizeof prepared / sizeof *prepared; i++)
        for (int bits = 0; bits < 8; bits++) {
            const int64_t *z = prepared[i];
            struct gemm g = {.M = z[0], .N = z[1], .K = z[2], .bf16 = true};
            g.a_trans = bits & 1;
            g.b_trans = bits & 2;
            g.accumulate = bits & 4;
            g.lda = (g.a_trans ? g.M : g.K) + n_threads;
            g.ldb = (g.b_trans ? g.K : g.N) + n_threads;
            g.ldc = g.N + n_threads - 1;
            half_product(d, &g);
        }
    device_close(&d);
}

/* oneDNN takes its instruction set once a process, so each has its own; as has each CBLAS. */
static bool in_child(const struct matmul_ops *ops, int isa, int n_threads,
                     void (*f)(const struct matmul_ops *ops, int isa, int n_threads))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        f(ops, isa, n_threads);
        fflush(stdout);
        _exit(check_bad_here != 0);
    }
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* What is enough for many rows is enough for fewer, whose tiles are wider. */
static void rooms_grow(void)
{
    static const int64_t size[] = {1, 16, 40, 150, 300, 1100, 5000, 9000, 20000};
    enum { N_SIZES = sizeof size / sizeof *size };
    struct device *d;
    CHECK(device_open_cpu(1, device_isa_best(), "plain", &d) == ERR_OK);
    for (int i = 0; i < N_SIZES * N_SIZES * N_SIZES; i++) {
        struct gemm g = {.N = size[i % N_SIZES], .K = size[i / N_SIZES % N_SIZES], .f16 = true};
        g.M = size[i / N_SIZES / N_SIZES];
        size_t most = cpu_product_room(d, &g);
        g.M = g.M * 2 / 3 + 1;
        bool right = cpu_product_room(d, &g) <= most && most > 0;
        g.f16 = false;
        check_that(right && cpu_product_room(d, &g) == 0, __FILE__, __LINE__,
                   "M %d N %d K %d has no room", (int)g.M, (int)g.N, (int)g.K);
    }
    device_close(&d);
}

/* A row's bits may not depend on how many rows there are, nor on the number of threads. */
static void plain_rows_alone(int isa)
{
    enum { M = 150, N = 75, K = 600 };
    float *A = noise_array(M * K), *B = noise_array(K * N);
    float *whole = noise_array(M * N), *part = noise_array(M * N);
    void *one, *two;
    CHECK(matmul_plain_ops.create(1, isa, &one) == ERR_OK);
    CHECK(matmul_plain_ops.create(2, isa, &two) == ERR_OK);
    struct gemm g = {.M = M, .N = N, .K = K, .lda = K, .ldb = N, .ldc = N};
    matmul_plain_ops.run(one, &g, A, B, whole);
    matmul_plain_ops.run(two, &g, A, B, part);
    CHECK(memcmp(whole, part, sizeof(float) * M * N) == 0);
    for (int64_t m = 1; m < M; m += 13) {
        g.M = m;
        matmul_plain_ops.run(one, &g, A + (M - m) * K, B, part);
        CHECK(memcmp(whole + (M - m) * N, part, sizeof(float) * (size_t)(m * N)) == 0);
    }
    matmul_plain_ops.destroy(&one);
    matmul_plain_ops.destroy(&two);
    free(A);
    free(B);
    free(whole);
    free(part);
}

int main(void)
{
    for (int i = 0; matmul_list[i]; i++)
        for (int isa = device_isa_best(); isa >= CPU_ISA_BASE; isa--)
            for (int n = 1; n <= 2; n++) {
                if (strcmp(matmul_list[i]->name, "cblas") == 0 && isa != device_isa_best())
                    continue; /* it cannot be told */
                bool same = isa > 0 && cpu_build(isa) == cpu_build(isa - 1);
                if (strcmp(matmul_list[i]->name, "plain") == 0 && same)
                    continue; /* only a library's bf16 is different */
                char name[96];
                snprintf(name, sizeof name, "%s, %s, %d threads: every layout, odd sizes",
                         matmul_list[i]->name, device_isa_name(isa), n);
                TEST (name)
                    CHECK(in_child(matmul_list[i], isa, n, all_shapes));
                snprintf(name, sizeof name, "%s, %s, %d threads: bf16 and fp16",
                         matmul_list[i]->name, device_isa_name(isa), n);
                TEST (name)
                    CHECK(in_child(matmul_list[i], isa, n, all_halves));
            }
    TEST ("widened: a plan for many rows has room for fewer")
        rooms_grow();
    TEST ("plain: rows have the same bits alone, together and on two threads")
        for (int isa = device_isa_best(); isa >= CPU_ISA_BASE; isa--)
            plain_rows_alone(isa);
    TEST ("a device names what it lacks") {
        struct device *d = NULL;
        const char *limit = getenv("ONEDNN_MAX_CPU_ISA"); /* of the whole program */
        CHECK(!limit || strcmp(limit, "AVX2") != 0 || device_isa_best() <= CPU_ISA_AVX2);
        CHECK(device_open_cpu(0, device_isa_best(), NULL, &d) == ERR_RESOURCE);
        CHECK_HAS(err_text(), "0 threads");
        CHECK(device_open_cpu(1, 99, NULL, &d) == ERR_RESOURCE);
        CHECK_HAS(err_text(), "instruction set");
        CHECK(device_open_cpu(1, device_isa_best(), "magic", &d) == ERR_RESOURCE);
        CHECK_HAS(err_text(), "\"magic\"");
        CHECK_HAS(err_text(), "plain");
        CHECK(d == NULL);
        CHECK(device_open_cpu(1, device_isa_best(), "plain", &d) == ERR_OK);
        char line[128];
        CHECK_HAS(device_describe(d, line, sizeof line), "plain");
        device_close(&d);
        CHECK(d == NULL);
    }
    return check_done();
}
