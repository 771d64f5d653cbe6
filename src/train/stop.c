/* The signal flag, one of the few globals there are: a handler has nothing else to write to. */
#include "train/stop.h"

#include "base/clock.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static volatile sig_atomic_t stop_signal;

static const int caught[] = {SIGINT, SIGTERM, SIGUSR1};
enum { N_CAUGHT = sizeof caught / sizeof *caught };

static void on_signal(int number)
{
    stop_signal = number;
}

static void caught_set(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < N_CAUGHT; i++)
        sigaddset(set, caught[i]);
}

/* oneDNN's sgemm kernels without copies let the stack pointer point into the heap (its issue 4845):
 * a handler that ran on such a thread would write its frame over what lies there.  So this thread
 * and those that it starts hold these signals back, and stop_wanted() asks for them; a thread that
 * a library started before may still run the handler, on a stack of its own. */
void stop_install(void)
{
    sigset_t set;
    for (int i = 0; i < N_CAUGHT; i++) {
        struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&a.sa_mask);
        sigaction(caught[i], &a, NULL);
    }
    caught_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void take_pending(void)
{
    const struct timespec now = {0};
    sigset_t set;
    int number;
    caught_set(&set);
    while ((number = sigtimedwait(&set, NULL, &now)) > 0)
        stop_signal = number;
}

void stop_init(struct stop *s, double limit_s)
{
    *s = (struct stop){.start_s = clock_now_s(), .limit_s = limit_s};
}

static bool limit_passed(const struct stop *s)
{
    return s->limit_s > 0 && clock_now_s() - s->start_s > s->limit_s;
}

bool stop_wanted(struct stop *s)
{
    take_pending();
    if (stop_signal && s->asked_s <= 0)
        s->asked_s = clock_now_s();
    return stop_signal || limit_passed(s);
}

const char *stop_reason(const struct stop *s)
{
    switch (stop_signal) {
    case SIGINT:
        return "SIGINT";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR1:
        return "SIGUSR1";
    default:
        return limit_passed(s) ? "the time limit" : "a signal to another rank";
    }
}

double stop_grace_s(const struct stop *s)
{
    if (stop_signal != SIGTERM && stop_signal != SIGINT)
        return 1e9;
    double wait = getenv("OMPI_COMM_WORLD_SIZE") ? 1 : 30;
    return wait - (clock_now_s() - s->asked_s);
}

bool stop_save_fits(double left_s, double last_save_s)
{
    const double first_s = 1.0 / 3, margin = 1.5;
    return left_s >= margin * (last_save_s < 0 ? first_s : last_save_s);
}
