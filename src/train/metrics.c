/* metrics.jsonl and progress. */
#include "train/metrics.h"

#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* mpirun gives every rank a pseudo-terminal, even where its own output goes to a file: then what
 * counts is where the launcher's output goes. */
static bool output_is_terminal(void)
{
    if (!isatty(STDOUT_FILENO))
        return false;
    if (!getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMIX_RANK"))
        return true;
    char path[64], to[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/1", (long)getppid());
    ssize_t n = readlink(path, to, sizeof to - 1);
    if (n < 0)
        return false;
    to[n] = 0;
    return strncmp(to, "/dev/pts/", 9) == 0 || strncmp(to, "/dev/tty", 8) == 0;
}

int metrics_open(struct metrics *m, const struct run *r, int64_t keep_bytes, struct arena *a)
{
    *m = (struct metrics){.fd = -1, .n_bytes = keep_bytes, .first_step = r->resume.step};
    m->last_tokens = r->resume.tokens;
    m->start_s = m->last_s = clock_now_s();
    if (r->comm->rank != 0)
        return ERR_OK;
    m->terminal = output_is_terminal();
    m->path = arena_printf(a, "%s/metrics.jsonl", r->conf.main.output_dir);
    m->fd = open(m->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (m->fd < 0)
        FAIL(ERR_RESOURCE, "cannot open %s: %s", m->path, strerror(errno));
    struct stat st;
    if (fstat(m->fd, &st) == 0 && st.st_size < keep_bytes)
        m->n_bytes = st.st_size; /* somebody shortened it: go on behind what is left */
    if (ftruncate(m->fd, (off_t)m->n_bytes) != 0)
        FAIL(ERR_RESOURCE, "cannot cut %s back: %s", m->path, strerror(errno));
    return ERR_OK;
}

void metrics_close(struct metrics *m)
{
    if (m->line_open)
        putchar('\n');
    m->line_open = false;
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

void metrics_apart(struct metrics *m, double seconds)
{
    m->apart_s += seconds;
}

static void say_progress(struct metrics *m, const struct engine *e, const struct step_report *s)
{
    char eta[32], out[256], scale[32] = "";
    if (e->run->shard.compute == DTYPE_F16)
        snprintf(scale, sizeof scale, "  scale %g", s->loss_scale);
    double now = clock_now_s(), dt = now - m->last_s - m->apart_s;
    int64_t total = e->run->batching.total_steps;
    double rate = dt > 0 ? (double)(e->tokens - m->last_tokens) / dt : 0;
    m->rate = rate;
    bool words = e->run->model->shape.kind == SAMPLE_TOKENS;
    double a_step = (now - m->start_s) / (double)(e->step - m->first_step);
    snprintf(out, sizeof out, "step %*lld/%lld  loss %.4f  lr %.2e  norm %.3f%s  %.*f %s/s  ETA %s",
             (int)snprintf(NULL, 0, "%lld", (long long)total), (long long)e->step, (long long)total,
             s->loss, s->lr, s->grad_norm, scale, rate < 100 ? 1 : 0, rate,
             words ? "tokens" : "targets", text_duration(eta, a_step * (double)(total - e->step)));
    if (m->terminal)
        printf("\r\033[K%s", out);
    else
        printf("%s\n", out);
    m->line_open = m->terminal;
    fflush(stdout);
    m->last_s = now;
    m->apart_s = 0;
    m->last_tokens = e->tokens;
}

static void say_eval(struct metrics *m, const struct engine *e, const struct eval_report *v)
{
    if (m->line_open)
        printf("\n");
    m->line_open = false;
    printf("eval at step %lld: loss %.4f", (long long)e->step, v->loss);
    if (!isnan(v->accuracy))
        printf("  accuracy %.2f %%", 100 * v->accuracy);
    printf("  (%lld %s)\n", (long long)v->n_valid,
           e->run->model->shape.kind == SAMPLE_TOKENS ? "tokens" : "targets");
    fflush(stdout);
}

/* JSON has no word for what is not finite. */
static void print_number(struct text *t, const char *key, double v)
{
    if (isfinite(v))
        text_printf(t, "\"%s\":%.17g,", key, v);
    else
        text_printf(t, "\"%s\":null,", key);
}

static bool due(const struct metrics *m, const struct engine *e)
{
    int64_t every = e->run->conf.main.log_every;
    bool edge = e->step == m->first_step + 1 || e->step == e->run->batching.total_steps;
    return edge || e->step % every == 0 || (m->terminal && clock_now_s() - m->last_s > 0.5);
}

int metrics_step(struct metrics *m, const struct engine *e, const struct step_report *s,
                 const struct eval_report *v)
{
    if (e->run->comm->rank != 0)
        return ERR_OK;
    struct text t = {0};
    text_printf(&t, "{\"step\":%lld,", (long long)e->step);
    print_number(&t, "loss", s->loss);
    print_number(&t, "lr", s->lr);
    print_number(&t, "grad_norm", s->grad_norm);
    text_printf(&t, "\"epoch\":%lld,\"samples\":%lld,\"tokens\":%lld,\"time_s\":%.3f",
                (long long)e->epoch, (long long)e->samples, (long long)e->tokens,
                clock_now_s() - m->start_s);
    if (e->run->shard.compute == DTYPE_F16)
        text_printf(&t, ",\"loss_scale\":%.17g,\"skipped\":%s", s->loss_scale,
                    s->skipped ? "true" : "false");
    if (v && !isnan(v->loss))
        text_printf(&t, ",\"eval_loss\":%.17g", v->loss);
    if (v && !isnan(v->accuracy))
        text_printf(&t, ",\"eval_accuracy\":%.17g", v->accuracy);
    text_printf(&t, "}\n");
    int rc = file_pwrite_fd(m->fd, m->path, t.s, t.n_bytes, m->n_bytes);
    m->n_bytes += (int64_t)t.n_bytes;
    text_clear(&t);
    if (s->skipped)
        metrics_say(m, e->run->comm,
                    "step %lld: the gradient overflows at loss scale %g, no update; next %g",
                    (long long)e->step, s->loss_scale, e->scale.scale);
    if (due(m, e))
        say_progress(m, e, s);
    if (v && v->n_valid > 0)
        say_eval(m, e, v);
    return rc;
}

void metrics_say(struct metrics *m, const struct comm *c, const char *fmt, ...)
{
    if (c->rank != 0)
        return;
    if (m->line_open)
        putchar('\n');
    m->line_open = false;
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}
