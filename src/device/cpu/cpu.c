/* The CPU as a device: memory, the choice of instruction set, opening. */
#include "device/cpu/cpu.h"

#include "base/text.h"
#include "device/kernels.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

extern const struct cpu_build cpu_build_base;
#ifdef __x86_64__
extern const struct cpu_build cpu_build_avx2, cpu_build_avx512;
#endif

static const char *const isa_names[] = {
    [CPU_ISA_BASE] = "base",     [CPU_ISA_AVX2] = "avx2",
    [CPU_ISA_AVX512] = "avx512", [CPU_ISA_AVX512_BF16] = "avx512_bf16",
    [CPU_ISA_AMX] = "amx",
};

const struct cpu_build *cpu_build(int isa)
{
    switch (isa) {
    case CPU_ISA_BASE:
        return &cpu_build_base;
#ifdef __x86_64__
    case CPU_ISA_AVX2:
        return &cpu_build_avx2;
    case CPU_ISA_AVX512:
    case CPU_ISA_AVX512_BF16:
    case CPU_ISA_AMX:
        return &cpu_build_avx512;
#endif
    default:
        return NULL;
    }
}

#ifdef __x86_64__
/* oneDNN's own variable limits the whole program, so that all of its numbers come from one
 * instruction set. */
static int isa_limit(void)
{
    const char *v = getenv("ONEDNN_MAX_CPU_ISA");
    if (!v)
        v = getenv("DNNL_MAX_CPU_ISA");
    if (!v)
        return CPU_ISA_AMX;
    if (text_same(v, "SSE41") || text_same(v, "AVX"))
        return CPU_ISA_BASE;
    if (strncasecmp(v, "AVX2", 4) == 0)
        return CPU_ISA_AVX2;
    if (text_same(v, "AVX512_CORE_BF16") || text_same(v, "AVX512_CORE_FP16"))
        return CPU_ISA_AVX512_BF16;
    bool avx512 = strncasecmp(v, "AVX512", 6) == 0 && strncasecmp(v, "AVX512_CORE_AMX", 15) != 0;
    return avx512 ? CPU_ISA_AVX512 : CPU_ISA_AMX;
}

/* Whether the system saves AMX's tiles, without which its instructions are faults. */
static bool has_amx(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & (3u << 17)) != 3u << 17 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    return (d & (1u << 22)) && (d & (1u << 24)); /* bf16, tile */
}

/* Intel's cores with AMX, which alone of Intel's have fp16 arithmetic, start one product of bf16
 * pairs every other clock and two fp32 ones every clock: 87 and 170 GFLOP/s on an Emerald Rapids
 * whose AMX was kept from a virtual machine.  Without AMX widened sides are twice as fast there. */
static bool pairs_are_slow(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 23));
}

static int avx512_level(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & (1u << 5)))
        return CPU_ISA_AVX512;
    return has_amx() ? CPU_ISA_AMX : pairs_are_slow() ? CPU_ISA_AVX512 : CPU_ISA_AVX512_BF16;
}

int device_isa_best(void)
{
    int limit = isa_limit();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
    int here = avx512 ? avx512_level() : avx2 ? CPU_ISA_AVX2 : CPU_ISA_BASE;
    return here < limit ? here : limit;
}
#else
int device_isa_best(void)
{
    return CPU_ISA_BASE;
}
#endif

const char *device_isa_name(int isa)
{
    return isa >= CPU_ISA_BASE && isa <= CPU_ISA_AMX ? isa_names[isa] : "unknown";
}

/* mmap: zeroed by the system when first touched, so on the toucher's NUMA node.  Huge pages make a
 * training step 4 % faster: rows of a large matrix lie pages apart. */
void *cpu_alloc(size_t n_bytes)
{
    enum { HUGE_FROM = 4 << 20 };
    void *p = mmap(NULL, n_bytes ? n_bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (n_bytes >= HUGE_FROM)
        (void)madvise(p, n_bytes, MADV_HUGEPAGE); /* a wish: without them it is slower, no more */
    return p;
}

void cpu_free(void *p, size_t n_bytes)
{
    if (p)
        munmap(p, n_bytes ? n_bytes : 1);
}

static void cpu_to_host(struct stream *s, void *host, const void *dev, size_t n_bytes)
{
    (void)s;
    if (n_bytes)
        memmove(host, dev, n_bytes);
}

static void cpu_to_device(struct stream *s, void *dev, const void *host, size_t n_bytes)
{
    (void)s;
    if (n_bytes)
        memmove(dev, host, n_bytes);
}

/* One core cannot write as fast as the memory takes it. */
static void cpu_zero(struct stream *s, void *dev, size_t n_bytes)
{
    const size_t piece = (size_t)1 << 20;
    if (n_bytes < 2 * piece) {
        if (n_bytes)
            memset(dev, 0, n_bytes);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(s->dev->n_threads)
    for (size_t at = 0; at < n_bytes; at += piece)
        memset((char *)dev + at, 0, n_bytes - at < piece ? n_bytes - at : piece);
}

static void cpu_copy(struct stream *s, void *to, const void *from, size_t n_bytes)
{
    const size_t piece = (size_t)1 << 20;
    if (n_bytes < 2 * piece) {
        if (n_bytes)
            memcpy(to, from, n_bytes);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(s->dev->n_threads)
    for (size_t at = 0; at < n_bytes; at += piece)
        memcpy((char *)to + at, (const char *)from + at,
               n_bytes - at < piece ? n_bytes - at : piece);
}

/* Bytes [begin, end) of the spans' copies. */
static void copy_range(char *host, const struct memory_span *span, int n, size_t begin, size_t end)
{
    size_t at = 0;
    for (int i = 0; i < n && at < end; at += span[i++].n_bytes) {
        size_t from = begin > at ? begin - at : 0;
        size_t to = end - at < span[i].n_bytes ? end - at : span[i].n_bytes;
        if (from < to)
            memcpy(host + at + from, (const char *)span[i].at + from, to - from);
    }
}

static void cpu_gather(struct stream *s, void *host, const struct memory_span *span, int n)
{
    const size_t piece = (size_t)1 << 20;
    size_t n_bytes = 0;
    for (int i = 0; i < n; i++)
        n_bytes += span[i].n_bytes;
    int n_threads = n_bytes < 2 * piece ? 1 : s->dev->n_threads;
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int t = 0; t < n_threads; t++)
        copy_range(host, span, n, n_bytes / (size_t)n_threads * (size_t)t,
                   t == n_threads - 1 ? n_bytes : n_bytes / (size_t)n_threads * (size_t)(t + 1));
}

static const struct memory_ops cpu_memory = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .to_host = cpu_to_host,
    .to_device = cpu_to_device,
    .zero = cpu_zero,
    .copy = cpu_copy,
    .gather = cpu_gather,
};

static int find_matmul(const char *name, const struct matmul_ops **ops)
{
    *ops = matmul_list[0];
    if (!name || text_same(name, "auto"))
        return ERR_OK;
    struct text have = {0};
    for (int i = 0; matmul_list[i]; i++) {
        if (text_same(name, matmul_list[i]->name)) {
            *ops = matmul_list[i];
            text_clear(&have);
            return ERR_OK;
        }
        text_printf(&have, "%s%s", i ? ", " : "", matmul_list[i]->name);
    }
    err_set(ERR_RESOURCE, "this build has no matrix product \"%s\": it has %s", name, have.s);
    text_clear(&have);
    return ERR_RESOURCE;
}

int device_open_cpu(int n_threads, int isa, const char *matmul, struct device **out)
{
    *out = NULL;
    if (n_threads < 1)
        FAIL(ERR_RESOURCE, "%d threads: at least 1 is needed", n_threads);
    const struct cpu_build *build = cpu_build(isa);
    if (!build || isa > device_isa_best())
        FAIL(ERR_RESOURCE, "instruction set %s does not run here: at most %s does",
             device_isa_name(isa), device_isa_name(device_isa_best()));
    for (int t = 0; t < DTYPE_COUNT; t++) {
        const char *missing = build->table[t] ? kernels_missing(build->table[t]) : NULL;
        if (missing)
            FAIL(ERR_INTERNAL, "the %s kernels of %s lack %s", device_isa_name(isa),
                 dtype_name((enum dtype)t), missing);
    }
    const struct matmul_ops *ops;
    TRY(find_matmul(matmul, &ops));

    struct device *d = calloc(1, sizeof *d);
    struct matmul *m = calloc(1, sizeof *m);
    if (!d || !m) {
        free(d);
        free(m);
        FAIL(ERR_RESOURCE, "out of memory for the device");
    }
    int rc = ops->create(n_threads, isa, &m->state);
    if (rc != ERR_OK) {
        free(d);
        free(m);
        return rc;
    }
    m->ops = ops;
    d->name = "cpu";
    d->mem = &cpu_memory;
    d->n_threads = n_threads;
    d->isa = isa;
    d->matmul = m;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (build->table[t]) {
            d->table[t] = build->table[t];
            kernels_make_null(&d->null_table[t], build->table[t]);
        }
    *out = d;
    return ERR_OK;
}
