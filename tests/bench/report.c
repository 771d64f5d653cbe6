/* Figures of the benchmark for people and for programs. */
#include "bench.h"

#include "base/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(const double *v, int n)
{
    double s[BENCH_ROUNDS_MAX];
    if (n == 0)
        return NAN;
    memcpy(s, v, (size_t)n * sizeof *v);
    qsort(s, (size_t)n, sizeof *s, ascending);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

/* Medians over the rounds; best: the fastest step. */
struct figures {
    double step_s, best_s, first_step_s, peak_bytes;
};

static struct figures figures_of(const struct bench_result *r)
{
    double step[BENCH_ROUNDS_MAX], first[BENCH_ROUNDS_MAX], peak[BENCH_ROUNDS_MAX];
    struct figures f = {.best_s = INFINITY};
    for (int i = 0; i < r->n; i++) {
        step[i] = r->round[i].step_s;
        first[i] = r->round[i].first_step_s;
        peak[i] = r->round[i].peak_bytes;
        f.best_s = fmin(f.best_s, step[i]);
    }
    f.step_s = bench_median(step, r->n);
    f.first_step_s = bench_median(first, r->n);
    f.peak_bytes = bench_median(peak, r->n);
    return f;
}

/* The best rate of all rounds, GFLOP/s; NaN if none was measured. */
static double best_peak(const struct bench_outcome *o)
{
    double best = NAN;
    for (int i = 0; i < o->n_peaks; i++)
        best = isnan(best) ? o->peak[i] : fmax(best, o->peak[i]);
    return best;
}

static double gflops(const struct bench_outcome *o, double step_s)
{
    return bench_flops(o->c) * (double)bench_units(o->c) / step_s * 1e-9;
}

static void print_result(const struct bench_outcome *o, const struct bench_result *r)
{
    const struct bench_result *ours = &o->result[0];
    struct figures f = figures_of(r);
    char memory[32];
    printf("  %-30.30s %10.1f %9.1f", r->name[0] ? r->name : r->key,
           (double)bench_units(o->c) / f.step_s, gflops(o, f.step_s));
    if (o->n_peaks > 0)
        printf(" %6.1f %% %6.1f %%", 100 * gflops(o, f.step_s) / best_peak(o),
               100 * gflops(o, f.best_s) / best_peak(o));
    else
        printf("        –        –");
    printf(" %10s %8.2f s", text_bytes(memory, f.peak_bytes), f.first_step_s);
    if (r != ours && ours->n > 0) {
        struct figures u = figures_of(ours);
        printf("  %5.2f x %5.2f x", f.step_s / u.step_s, u.peak_bytes / f.peak_bytes);
    }
    printf("\n");
}

static void print_kernels(const struct bench_outcome *o)
{
    double sum = 0;
    if (o->n_kernels == 0) {
        if (o->kernel_skip[0])
            printf("  time per kernel: left out: %s\n", o->kernel_skip);
        return;
    }
    for (int i = 0; i < o->n_kernels; i++)
        sum += o->kernel[i].self_s;
    printf("  time per kernel of ours, ms a step without what it calls:\n");
    for (int i = 0; i < o->n_kernels && i < 24; i++) {
        const struct bench_kernel *k = &o->kernel[i];
        printf("    %-28s %-14s %9.3f ms %5.1f %%  %7.1f calls\n", k->name, k->lane,
               1e3 * k->self_s, 100 * k->self_s / sum, k->calls);
    }
}

void bench_print(const struct bench_outcome *o)
{
    const struct bench_case *c = o->c;
    printf("\n%s, %s, %d thread%s: %s, batch %lld", c->name, o->precision, o->threads,
           o->threads == 1 ? "" : "s", c->what, (long long)c->B);
    if (c->T > 0)
        printf(" x %lld tokens", (long long)c->T);
    printf(", %.1f M parameters\n", 1e-6 * (double)bench_params(c));
    if (o->n_peaks > 0)
        printf("  matrix products alone: %.1f GFLOP/s at best, median %.1f (%s)\n", best_peak(o),
               bench_median(o->peak, o->n_peaks), o->peak_name);
    else
        printf("  matrix products alone: not measured: %s\n", o->peak_skip);
    printf("  %-30s %10s %9s %8s %8s %10s %10s  %7s %7s\n", "", bench_unit_name(c), "GFLOP/s",
           "of peak", "(best)", "memory", "1st step", "ours is", "needs");
    for (int i = 0; i < o->n_results; i++)
        if (o->result[i].n > 0)
            print_result(o, &o->result[i]);
    for (int i = 0; i < o->n_results; i++)
        if (o->result[i].skip[0])
            printf("  left out: %s: %s\n", o->result[i].key, o->result[i].skip);
    print_kernels(o);
    fflush(stdout);
}

static void json_number(struct text *t, const char *key, double v)
{
    if (isfinite(v))
        text_printf(t, ",\"%s\":%.9g", key, v);
    else
        text_printf(t, ",\"%s\":null", key);
}

static void json_string(struct text *t, const char *key, const char *v)
{
    text_printf(t, ",\"%s\":", key);
    text_json_string(t, v);
}

static void json_result(struct text *t, const struct bench_outcome *o, const struct bench_result *r)
{
    const struct bench_result *ours = &o->result[0];
    text_printf(t, "{\"program\":");
    text_json_string(t, r->key);
    json_string(t, "name", r->name);
    if (r->skip[0])
        json_string(t, "left_out", r->skip);
    if (r->n > 0) {
        struct figures f = figures_of(r), u = figures_of(ours);
        json_number(t, "step_s", f.step_s);
        json_number(t, "best_step_s", f.best_s);
        json_number(t, "units_per_s", (double)bench_units(o->c) / f.step_s);
        json_number(t, "gflops", gflops(o, f.step_s));
        json_number(t, "share_of_peak", gflops(o, f.step_s) / best_peak(o));
        json_number(t, "peak_bytes", f.peak_bytes);
        json_number(t, "first_step_s", f.first_step_s);
        if (ours->n > 0) {
            json_number(t, "ours_is_faster_by", f.step_s / u.step_s);
            json_number(t, "ours_needs_memory", u.peak_bytes / f.peak_bytes);
        }
    }
    text_printf(t, ",\"rounds\":[");
    for (int i = 0; i < r->n; i++)
        text_printf(t, "%s{\"step_s\":%.9g,\"first_step_s\":%.9g,\"peak_bytes\":%.0f}",
                    i ? "," : "", r->round[i].step_s, r->round[i].first_step_s,
                    r->round[i].peak_bytes);
    text_printf(t, "]}");
}

static void json_outcome(struct text *t, const struct bench_outcome *o)
{
    text_printf(t, "{\"case\":");
    text_json_string(t, o->c->name);
    json_string(t, "precision", o->precision);
    json_string(t, "unit", bench_unit_name(o->c));
    text_printf(t, ",\"threads\":%d,\"units_per_step\":%lld,\"parameters\":%lld", o->threads,
                (long long)bench_units(o->c), (long long)bench_params(o->c));
    json_number(t, "flops_per_unit", bench_flops(o->c));
    json_string(t, "matrix_products_by", o->peak_name);
    if (o->peak_skip[0])
        json_string(t, "matrix_products_left_out", o->peak_skip);
    json_number(t, "peak_gflops", best_peak(o));
    text_printf(t, ",\"peak_gflops_by_round\":[");
    for (int i = 0; i < o->n_peaks; i++)
        text_printf(t, "%s%.6g", i ? "," : "", o->peak[i]);
    text_printf(t, "],\"programs\":[");
    for (int i = 0; i < o->n_results; i++) {
        text_printf(t, i ? ",\n" : "\n");
        json_result(t, o, &o->result[i]);
    }
    text_printf(t, "],\"kernels\":[");
    for (int i = 0; i < o->n_kernels; i++) {
        const struct bench_kernel *k = &o->kernel[i];
        text_printf(t, "%s{\"name\":", i ? ",\n" : "\n");
        text_json_string(t, k->name);
        json_string(t, "lane", k->lane);
        text_printf(t, ",\"self_s\":%.9g,\"calls\":%.9g}", k->self_s, k->calls);
    }
    text_printf(t, "]");
    if (o->kernel_skip[0])
        json_string(t, "kernels_left_out", o->kernel_skip);
    text_printf(t, "}");
}

int bench_write_json(const struct bench_conf *b, const struct bench_outcome *o, int n)
{
    struct text t = {0};
    text_printf(&t, "{\"rounds\":%lld", (long long)b->rounds);
    json_string(&t, "isa_limit", b->isa ? b->isa : "");
    text_printf(&t, ",\"cases\":[");
    for (int i = 0; i < n; i++) {
        text_printf(&t, i ? ",\n" : "\n");
        json_outcome(&t, &o[i]);
    }
    text_printf(&t, "]}\n");
    int rc = file_write(b->json, t.s, t.n_bytes);
    text_clear(&t);
    return rc;
}
