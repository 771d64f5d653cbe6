/* Preloaded: pwrite at a fixed rate, SLOW_WRITE bytes a second for the process, as on a shared file
 * system.  A write waits until its bytes are due, without using the core. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

ssize_t pwrite(int fd, const void *bytes, size_t n_bytes, off_t offset);
ssize_t pwrite64(int fd, const void *bytes, size_t n_bytes, off_t offset);

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Small writes add up: nobody sleeps for less than 2 ms. */
static void wait_for(size_t n_bytes)
{
    static _Thread_local double due_s;
    const char *rate = getenv("SLOW_WRITE");
    double now = now_s();
    due_s = (due_s > now ? due_s : now) + (rate ? (double)n_bytes / atof(rate) : 0);
    double s = due_s - now;
    if (s > 0.002) {
        struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
        nanosleep(&t, NULL);
    }
}

ssize_t pwrite(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    wait_for(n_bytes);
    return syscall(SYS_pwrite64, fd, bytes, n_bytes, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n_bytes, off_t offset)
{
    return pwrite(fd, bytes, n_bytes, offset);
}
