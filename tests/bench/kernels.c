/* Where a step of ours spends its time: a profiled run's trace, added up by name.  A span's own
 * time is its duration without the spans of its lane that lie in it. */
#include "bench.h"

#include "base/file.h"
#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROFILED = 2 }; /* steps */

struct span {
    const char *name, *lane;
    double begin, dur, inner; /* microseconds; inner: what its children take */
};

static int by_lane_and_time(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    int lane = strcmp(x->lane, y->lane);
    if (lane)
        return lane;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->dur > y->dur ? -1 : x->dur < y->dur;
}

static int read_spans(const struct json *all, struct span *s)
{
    int n = 0;
    for (const struct json *e = all->child; e; e = e->next) {
        const char *ph;
        if (json_get_string(e, "ph", &ph) != ERR_OK || strcmp(ph, "X") != 0)
            continue;
        s[n] = (struct span){0};
        if (json_get_string(e, "name", &s[n].name) == ERR_OK &&
            json_get_string(e, "cat", &s[n].lane) == ERR_OK &&
            json_get_f64(e, "ts", &s[n].begin) == ERR_OK &&
            json_get_f64(e, "dur", &s[n].dur) == ERR_OK)
            n++;
    }
    return n;
}

/* Sorted spans: each one's time is taken from the innermost that holds it. */
static void find_inner(struct span *s, int n)
{
    int open[128], depth = 0;
    for (int i = 0; i < n; i++) {
        while (depth > 0) {
            const struct span *top = &s[open[depth - 1]];
            if (strcmp(top->lane, s[i].lane) == 0 && s[i].begin < top->begin + top->dur)
                break;
            depth--;
        }
        if (depth > 0)
            s[open[depth - 1]].inner += s[i].dur;
        if (depth < 128)
            open[depth++] = i;
    }
}

static struct bench_kernel *kernel_of(struct bench_outcome *o, const struct span *s)
{
    for (int i = 0; i < o->n_kernels; i++)
        if (strcmp(o->kernel[i].name, s->name) == 0 && strcmp(o->kernel[i].lane, s->lane) == 0)
            return &o->kernel[i];
    if (o->n_kernels == BENCH_KERNELS)
        return NULL;
    struct bench_kernel *k = &o->kernel[o->n_kernels++];
    snprintf(k->name, sizeof k->name, "%s", s->name);
    snprintf(k->lane, sizeof k->lane, "%s", s->lane);
    return k;
}

static int slowest_first(const void *a, const void *b)
{
    const struct bench_kernel *x = a, *y = b;
    return x->self_s > y->self_s ? -1 : x->self_s < y->self_s;
}

static void add_up(struct bench_outcome *o, const struct json *events, struct arena *a)
{
    struct span *s = arena_alloc(a, (size_t)(events->n_children + 1) * sizeof *s);
    int n = read_spans(events, s);
    qsort(s, (size_t)n, sizeof *s, by_lane_and_time);
    find_inner(s, n);
    for (int i = 0; i < n; i++) {
        struct bench_kernel *k = kernel_of(o, &s[i]);
        if (!k)
            continue;
        k->self_s += fmax(0, s[i].dur - s[i].inner) * 1e-6 / PROFILED;
        k->calls += 1.0 / PROFILED;
    }
    qsort(o->kernel, (size_t)o->n_kernels, sizeof o->kernel[0], slowest_first);
}

struct lines {
    char *skip;
    int64_t last;
};

static bool line(void *self, const char *text, double at_s)
{
    struct lines *x = self;
    const char *error = strstr(text, "error: ");
    long long step;
    (void)at_s;
    if (error)
        snprintf(x->skip, sizeof((struct bench_outcome *)0)->kernel_skip, "%s", error + 7);
    return sscanf(text, "step %lld/", &step) != 1 || step < x->last;
}

void bench_kernels(const struct bench_conf *b, struct bench_outcome *o)
{
    struct arena *a = arena_create();
    const char *folder = bench_folder(b, o, a), *log = arena_printf(a, "%s/stderr.log", b->work);
    const char *const *job = bench_job(b, o, "train", a);
    const char *argv[48] = {0};
    int n = 0;
    for (; job[n] && n < 44; n++)
        argv[n] = job[n];
    int64_t first = o->c->drop + 1, last = first + PROFILED;
    argv[n++] = "job.profile=true";
    argv[n++] = arena_printf(a, "job.profile_steps=%lld, %d", (long long)first, PROFILED);
    argv[n++] = arena_printf(a, "job.log_every=%lld", (long long)last);
    struct lines x = {.skip = o->kernel_skip, .last = last};
    struct bench_child c = {.argv = argv, .log = log, .limit_s = 900, .line = line, .self = &x};
    (void)file_remove_tree(folder);
    bench_run(&c);
    char *bytes = NULL;
    size_t n_bytes;
    const struct json *root, *events = NULL;
    if (!o->kernel_skip[0]) {
        const char *path = arena_printf(a, "%s/profile_0.json", folder);
        if (file_read(path, (size_t)1 << 30, ERR_DATA, &bytes, &n_bytes) == ERR_OK &&
            json_parse(bytes, n_bytes, a, &root) == ERR_OK)
            events = json_get(root, "traceEvents");
        if (events)
            add_up(o, events, a);
        else
            snprintf(o->kernel_skip, sizeof o->kernel_skip, "no trace: %.400s", err_text());
    }
    free(bytes);
    (void)file_remove_tree(folder);
    arena_destroy(&a);
}
