/* The signal flag, one of the few globals there are: a handler has nothing else to write to. */
#include "train/stop.h"

#include "base/clock.h"
#include <signal.h>
#include <stdlib.h>

static volatile sig_atomic_t stop_signal;
static double stop_start_s, stop_limit_s, stop_signal_s;

static void on_signal(int number)
{
    stop_signal = number;
}

void stop_install(void)
{
    stop_start_s = clock_now_s();
    const int caught[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigemptyset(&a.sa_mask);
        sigaction(caught[i], &a, NULL);
    }
}

void stop_set_limit(double seconds)
{
    stop_limit_s = seconds;
}

static bool limit_passed(void)
{
    return stop_limit_s > 0 && clock_now_s() - stop_start_s > stop_limit_s;
}

bool stop_wanted(void)
{
    if (stop_signal && stop_signal_s <= 0)
        stop_signal_s = clock_now_s();
    return stop_signal || limit_passed();
}

const char *stop_reason(void)
{
    switch (stop_signal) {
    case SIGINT:
        return "SIGINT";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR1:
        return "SIGUSR1";
    default:
        return limit_passed() ? "the time limit" : "a signal to another rank";
    }
}

double stop_grace_s(void)
{
    if (stop_signal != SIGTERM && stop_signal != SIGINT)
        return 1e9;
    double wait = getenv("OMPI_COMM_WORLD_SIZE") ? 1 : 30;
    return wait - (clock_now_s() - stop_signal_s);
}
