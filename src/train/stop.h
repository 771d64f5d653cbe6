/* Requests to stop: signals and the time limit.  A request is this rank's wish; the control word of
 * the next step makes it everybody's. */
#pragma once
#include <stdbool.h>

/* Catch INT, TERM and USR1, and note when this process started.  Local. */
void stop_install(void);

/* A signal came or the limit (seconds since stop_install, 0: none) has passed.  Local. */
bool stop_wanted(void);
void stop_set_limit(double seconds);

/* What asked, in a word: "SIGTERM", "the time limit".  Local. */
const char *stop_reason(void);

/* Seconds left before a launcher kills this process: unlimited but for SIGINT and SIGTERM, behind
 * which mpirun sends KILL after one second and Slurm after KillWait (30).  Local. */
double stop_grace_s(void);
