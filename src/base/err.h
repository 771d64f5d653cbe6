/* Errors: a status that is also the exit status, and one text for the person who reads it.
 *
 * Local code returns a status through TRY.  Phases that all ranks take part in agree on it first
 * (TRY_ALL in comm/comm.h), so that no rank returns alone.  A broken invariant ends the job at once
 * (REQUIRE).  The last error is kept per thread; only main.c prints it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum err {
    ERR_OK = 0,
    ERR_USAGE = 2,     /* command line or job file */
    ERR_DATA = 3,      /* data or checkpoint */
    ERR_RESOURCE = 4,  /* memory, disk or device */
    ERR_DIVERGED = 5,  /* NaN, or the loss scale at its minimum */
    ERR_COMM = 6,      /* MPI failed, or ranks cannot reach each other */
    ERR_INTERNAL = 70, /* our own mistake */
    ERR_STOPPED = 75   /* stopped early by a signal or the time limit, after saving */
};

enum { ERR_TEXT_BYTES = 1024 };

#define PRINTF_LIKE(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

/* Keep code and its text as this thread's last error; returns code.  Local. */
int err_set(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Put "prefix: " in front of this thread's last error text (a file name, say).  Local. */
void err_prefix(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* This thread's last error, "" if there was none.  Local.  Borrowed until the next err_set. */
const char *err_text(void);

/* The buffer itself, ERR_TEXT_BYTES long, for the broadcast in comm_agree().  Local. */
char *err_text_buffer(void);

/* What err_fatal() calls to end every rank; comm/ installs MPI_Abort.  Local. */
void err_on_fatal(void (*end_job)(int status));

/* A broken invariant: print rank-local text with file and line, then end the whole job.  Local. */
_Noreturn void err_fatal(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define FAIL(code, ...) return err_set((code), __VA_ARGS__)
#define FATAL(...) err_fatal(__FILE__, __LINE__, __VA_ARGS__)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ != ERR_OK)                                                                         \
            return rc_;                                                                            \
    } while (0)
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            FATAL("broken invariant: %s", #cond);                                                  \
    } while (0)

/* Fault injection for tests/fault: a build with -DSTRETTO_FAULTS fails, hangs or dies here when
 * the environment says STRETTO_FAULT=RANK:SITE:KIND.  Any other build: always ERR_OK.  Local. */
#ifdef STRETTO_FAULTS
int err_fault(int rank, const char *site);
#else
static inline int err_fault(int rank, const char *site)
{
    (void)rank;
    (void)site;
    return ERR_OK;
}
#endif
