/* What a run says while it trains: metrics.jsonl, one object a step, and lines for a person. */
#pragma once
#include "train/engine.h"

struct metrics {
    int fd; /* rank 0; -1 elsewhere */
    const char *path;
    int64_t n_bytes; /* of metrics.jsonl so far: stored in the checkpoint */
    bool terminal;   /* standard output ends at a person */
    bool line_open;  /* a progress line without its newline */
    double start_s, last_s;
    double apart_s; /* since the last line, of what is no training */
    double rate;    /* tokens or targets a second, of the last line */
    int64_t last_tokens, first_step;
};

/* Open OUTPUT_DIR/metrics.jsonl, cut back to keep_bytes of an earlier run.  ERR_RESOURCE.
 * Local; a rank other than 0 opens nothing. */
int metrics_open(struct metrics *m, const struct run *r, int64_t keep_bytes, struct arena *a);
void metrics_close(struct metrics *m);

/* seconds went into an evaluation, a sample or a save: the rate is training's own.  Local. */
void metrics_apart(struct metrics *m, double seconds);

/* One step, with the evaluation behind it or NULL.  Rank 0 writes and prints.  ERR_RESOURCE if the
 * disk is full.  Local. */
int metrics_step(struct metrics *m, const struct engine *e, const struct step_report *s,
                 const struct eval_report *eval);

/* Print a line of its own on rank 0.  Local. */
void metrics_say(struct metrics *m, const struct comm *c, const char *fmt, ...) PRINTF_LIKE(3, 4);
