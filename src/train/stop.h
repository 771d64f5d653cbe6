/* Requests to stop: signals and the time limit.  A request is this rank's wish; the control word of
 * the next step makes it everybody's. */
#pragma once
#include <stdbool.h>

struct stop {
    double start_s, limit_s; /* limit 0: none */
    double asked_s;          /* when a signal was first noticed; 0: never */
};

/* Catch INT, TERM and USR1.  Local. */
void stop_install(void);

/* Begin to count towards a limit in seconds, 0 for none.  Local. */
void stop_init(struct stop *s, double limit_s);

/* A signal came or the limit has passed.  Local. */
bool stop_wanted(struct stop *s);

/* What asked, in a word: "SIGTERM", "the time limit".  Local. */
const char *stop_reason(const struct stop *s);

/* Seconds left before a launcher kills this process: unlimited but for SIGINT and SIGTERM, behind
 * which mpirun sends KILL after one second and Slurm after KillWait (30).  Local. */
double stop_grace_s(const struct stop *s);

/* Whether a save that took last_save_s (< 0: none was measured) still fits into left_s: half as
 * long again is kept in hand, and a first save is taken for a third of a second.  Local, pure. */
bool stop_save_fits(double left_s, double last_save_s);
