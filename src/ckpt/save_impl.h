/* A save under way: save.c leads, save_write.c does what a rank does alone. */
#pragma once
#include "ckpt/ckpt_impl.h"

#include <stdatomic.h>

enum phase { PHASE_PREPARE, PHASE_WRITE, PHASE_COMMIT };

struct saving {
    struct comm *c;      /* borrowed */
    struct ckpt_save s;  /* its pieces are ours; arrays, values, meta are borrowed */
    struct arena *arena; /* owned; ranges and paths, no values */
    enum phase phase;
    atomic_bool cancelled;
    struct commit commit; /* rank 0 */
    const char *tmp_dir;
    struct manifest m;           /* files of this rank until they are gathered */
    struct placement *placement; /* (n_files) of this rank's files; full.h5: of every rank */
    bool *mine;                  /* (n_files) laid out by this rank */
    struct ckpt_range *ranges;
    int64_t n_ranges;
};

/* Everything of file f but its values, in step-N.tmp.  Local. */
int saving_lay_out(struct saving *v, int f);
/* This rank's files, or its ranges of the full one, on the disk; v->ranges.  Local. */
int saving_write(struct saving *v);
