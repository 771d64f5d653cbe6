/* The last error of each thread, and the one way to end a job on a broken invariant. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef STRETTO_FAULTS
#include <signal.h>
#include <unistd.h>
#endif

static _Thread_local char last_text[ERR_TEXT_BYTES];
static void (*end_job_hook)(int status);

int err_set(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(last_text, sizeof last_text, fmt, ap);
    va_end(ap);
    for (char *c = last_text; *c; c++) /* one message is one line, whatever a value holds */
        if ((unsigned char)*c < 32 || *c == 127)
            *c = ' ';
    return code;
}

void err_prefix(const char *fmt, ...)
{
    char old[ERR_TEXT_BYTES];
    memcpy(old, last_text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(last_text, sizeof last_text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof last_text)
        snprintf(last_text + n, sizeof last_text - (size_t)n, ": %s", old);
}

const char *err_text(void)
{
    return last_text;
}

char *err_text_buffer(void)
{
    return last_text;
}

void err_on_fatal(void (*end_job)(int status))
{
    end_job_hook = end_job;
}

void err_fatal(const char *file, int line, const char *fmt, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "stretto: internal error: %s (%s:%d)\n", text, file, line);
    fflush(stderr);
    if (end_job_hook)
        end_job_hook(ERR_INTERNAL);
    exit(ERR_INTERNAL);
}

#ifdef STRETTO_FAULTS
int err_fault(int rank, const char *site)
{
    const char *want = getenv("STRETTO_FAULT");
    char head[128];
    snprintf(head, sizeof head, "%d:%s:", rank, site);
    if (!want || strncmp(want, head, strlen(head)) != 0)
        return ERR_OK;
    const char *kind = want + strlen(head);
    if (strcmp(kind, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(kind, "hang") == 0)
        pause();
    FAIL(ERR_RESOURCE, "fault injected on rank %d at %s", rank, site);
}
#endif
