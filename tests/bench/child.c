/* Running a program: its lines with their times, its peak memory, its end. */
#include "bench.h"

#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* execvp's type is from before const. */
static char **writable(const char *const *argv)
{
    union {
        const char *const *in;
        char **out;
    } u = {argv};
    return u.out;
}

static pid_t start(const struct bench_child *c, int out[2])
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody trains on when the driver is stopped */
    int log = open(c->log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(log >= 0 ? log : out[1], STDERR_FILENO);
    close(out[0]);
    if (!c->dir || chdir(c->dir) == 0)
        execvp(c->argv[0], writable(c->argv));
    printf("skip cannot start %s: %s\n", c->argv[0], strerror(errno));
    fflush(stdout);
    _exit(127);
}

struct reader {
    char buf[4096];
    size_t n;
};

/* Hand out whole lines; false: the child is no longer wanted. */
static bool read_lines(struct reader *r, const struct bench_child *c, ssize_t got, double at_s)
{
    bool go_on = true;
    r->n += (size_t)got;
    for (char *end; (end = memchr(r->buf, '\n', r->n));) {
        *end = 0;
        go_on = go_on && c->line(c->self, r->buf, at_s);
        size_t used = (size_t)(end - r->buf) + 1;
        memmove(r->buf, end + 1, r->n - used);
        r->n -= used;
    }
    if (r->n == sizeof r->buf) /* no line of ours is as long */
        r->n = 0;
    return go_on;
}

void bench_run(struct bench_child *c)
{
    int out[2];
    struct rusage use = {0};
    c->status = -1;
    if (pipe2(out, O_CLOEXEC) != 0)
        FATAL("no pipe: %s", strerror(errno));
    double begin = clock_now_s(), heard = begin, told = 0;
    pid_t pid = start(c, out);
    if (pid < 0)
        FATAL("cannot fork: %s", strerror(errno));
    close(out[1]);
    struct reader r = {.n = 0};
    for (;;) {
        struct pollfd p = {.fd = out[0], .events = POLLIN};
        int ready = poll(&p, 1, 1000);
        double now = clock_now_s();
        ssize_t got = ready > 0 ? read(out[0], r.buf + r.n, sizeof r.buf - r.n) : -1;
        if (got == 0)
            break;
        if (got > 0) {
            heard = now;
            if (!read_lines(&r, c, got, now - begin) && told == 0) {
                kill(pid, SIGTERM);
                told = now;
            }
        }
        if (now - heard > c->limit_s || (told > 0 && now - told > 60))
            kill(pid, SIGKILL);
    }
    close(out[0]);
    wait4(pid, &c->status, 0, &use);
    c->peak_bytes = (double)use.ru_maxrss * 1024;
}
