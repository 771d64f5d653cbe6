/* Every checksum of a checkpoint, each fault by its name. */
#pragma once
#include "base/arena.h"
#include "base/text.h"

struct verify_tally {
    int n_files;
    int64_t n_ranges, n_bytes;
    int n_faults;
};

/* Check a step's folder to its last byte; a line to faults for everything that is wrong: the
 * manifest, a file that is missing, of another size or not of this checkpoint, a range whose
 * checksum is wrong.  only: the name of the one file to look at, or NULL.  Local. */
void verify_step(const char *dir, const char *only, struct verify_tally *n, struct text *faults);

/* Folders of all complete steps in a run's folder, oldest first; 0 of them if it is none.
 * ERR_DATA.  Local. */
int verify_steps(const char *run_dir, struct arena *a, const char *const **dirs, int *n_dirs);
