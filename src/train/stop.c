/* The signal flag, one of the few globals there are: a handler has nothing else to write to. */
#include "train/stop.h"

#include "base/clock.h"
#include <signal.h>
#include <stdlib.h>

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

void stop_install(void)
{
    const int caught[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&a.sa_mask);
        sigaction(caught[i], &a, NULL);
    }
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
