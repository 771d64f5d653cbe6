/* One run of each kind of contender, from the command to its figures. */
#include "bench.h"

#include "base/file.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { SILENT_S = 900 }; /* torch.compile may take minutes */

static void log_path(const struct bench_conf *b, char *path, size_t cap)
{
    snprintf(path, cap, "%s/stderr.log", b->work);
}

static void skip_text(char *skip, size_t cap, const char *what, int status)
{
    if (WIFSIGNALED(status))
        snprintf(skip, cap, "%s: ended by signal %d", what, WTERMSIG(status));
    else
        snprintf(skip, cap, "%s: status %d", what, WEXITSTATUS(status));
}

struct peak_lines {
    struct bench_outcome *o;
    double peak;
};

static bool peak_line(void *self, const char *text, double at_s)
{
    struct peak_lines *x = self;
    (void)at_s;
    if (strncmp(text, "peak ", 5) == 0)
        x->peak = strtod(text + 5, NULL);
    else if (strncmp(text, "name ", 5) == 0)
        snprintf(x->o->peak_name, sizeof x->o->peak_name, "%s", text + 5);
    else if (strncmp(text, "skip ", 5) == 0)
        snprintf(x->o->peak_skip, sizeof x->o->peak_skip, "%s", text + 5);
    return true;
}

void bench_peak(const struct bench_conf *b, struct bench_outcome *o)
{
    char threads[16], log[512];
    snprintf(threads, sizeof threads, "%d", o->threads);
    log_path(b, log, sizeof log);
    const char *const argv[] = {b->gemm_peak, o->precision, threads, NULL};
    struct peak_lines x = {.o = o};
    struct bench_child c = {
        .argv = argv, .log = log, .limit_s = SILENT_S, .line = peak_line, .self = &x};
    if (o->peak_skip[0])
        return;
    bench_run(&c);
    if (x.peak > 0)
        o->peak[o->n_peaks++] = x.peak;
    else if (!o->peak_skip[0])
        skip_text(o->peak_skip, sizeof o->peak_skip, "gemm_peak", c.status);
}

/* Lines of a peer: "name", "skip", "steps N SECONDS", "# …". */
struct peer_lines {
    struct bench_result *r;
    const struct bench_case *c;
    int64_t done, kept;
    double kept_s, first_s;
};

static bool peer_line(void *self, const char *text, double at_s)
{
    struct peer_lines *x = self;
    long long n;
    double s;
    if (strncmp(text, "name ", 5) == 0) {
        snprintf(x->r->name, sizeof x->r->name, "%s", text + 5);
    } else if (strncmp(text, "skip ", 5) == 0) {
        snprintf(x->r->skip, sizeof x->r->skip, "%s", text + 5);
    } else if (sscanf(text, "steps %lld %lf", &n, &s) == 2) {
        if (x->done == 0)
            x->first_s = at_s;
        if (x->done >= x->c->drop) {
            x->kept += n;
            x->kept_s += s;
        }
        x->done += n;
    }
    return true;
}

void bench_peer(const struct bench_conf *b, struct bench_outcome *o, struct bench_result *r,
                const char *const *argv)
{
    char log[512];
    struct peer_lines x = {.r = r, .c = o->c};
    log_path(b, log, sizeof log);
    struct bench_child c = {
        .argv = argv, .log = log, .limit_s = SILENT_S, .line = peer_line, .self = &x};
    bench_run(&c);
    if (r->skip[0])
        return;
    if (x.kept > 0 && c.status == 0)
        r->round[r->n++] = (struct bench_round){.step_s = x.kept_s / (double)x.kept,
                                                .first_step_s = x.first_s,
                                                .peak_bytes = c.peak_bytes};
    else
        skip_text(r->skip, sizeof r->skip, "failed, see stderr.log", c.status);
}

/* Lines of ours: an error, or progress. */
struct our_lines {
    struct bench_result *r;
    int64_t last;
    double first_s;
};

static bool our_line(void *self, const char *text, double at_s)
{
    struct our_lines *x = self;
    const char *error = strstr(text, "error: ");
    long long step;
    if (error)
        snprintf(x->r->skip, sizeof x->r->skip, "%s", error + 7);
    if (sscanf(text, "step %lld/", &step) != 1)
        return true;
    if (x->first_s == 0)
        x->first_s = at_s;
    return step < x->last;
}

/* The time of a step in metrics.jsonl; -1: not there.  Only that line is parsed: what the driver
 * holds in memory, its next child starts with. */
static double time_of(const char *metrics, int64_t step, struct arena *a)
{
    const char *begin = arena_printf(a, "{\"step\":%lld,", (long long)step);
    for (const char *line = metrics, *end; (end = strchr(line, '\n')); line = end + 1) {
        const struct json *j;
        double t;
        if (strncmp(line, begin, strlen(begin)) == 0 &&
            json_parse(line, (size_t)(end - line), a, &j) == ERR_OK &&
            json_get_f64(j, "time_s", &t) == ERR_OK)
            return t;
    }
    return -1;
}

/* Mean step between the end of the warm-up and the end of the run. */
static double our_step(const char *folder, const struct bench_case *c, struct arena *a)
{
    char *bytes;
    size_t n_bytes;
    const char *path = arena_printf(a, "%s/metrics.jsonl", folder);
    if (file_read(path, 1 << 28, ERR_DATA, &bytes, &n_bytes) != ERR_OK)
        return -1;
    double t0 = time_of(bytes, c->drop, a), t1 = time_of(bytes, c->steps, a);
    free(bytes);
    return t0 < 0 || t1 < 0 ? -1 : (t1 - t0) / (double)(c->steps - c->drop);
}

void bench_ours(const struct bench_conf *b, struct bench_outcome *o, struct bench_result *r)
{
    char log[512];
    struct arena *a = arena_create();
    const char *folder = bench_folder(b, o, a);
    struct our_lines x = {.r = r, .last = o->c->steps};
    log_path(b, log, sizeof log);
    struct bench_child c = {.argv = bench_job(b, o, "train", a),
                            .log = log,
                            .limit_s = SILENT_S,
                            .line = our_line,
                            .self = &x};
    if (file_remove_tree(folder) != ERR_OK)
        FATAL("%s", err_text());
    bench_run(&c);
    snprintf(r->name, sizeof r->name, "stretto");
    double step_s = our_step(folder, o->c, a);
    if (step_s > 0)
        r->round[r->n++] = (struct bench_round){
            .step_s = step_s, .first_step_s = x.first_s, .peak_bytes = c.peak_bytes};
    else if (!r->skip[0])
        skip_text(r->skip, sizeof r->skip, "failed, see stderr.log", c.status);
    (void)file_remove_tree(folder);
    arena_destroy(&a);
}
