/* The output folder: what is in it already, and whether a run can write there. */
#pragma once
#include "train/setup.h"

/* The checkpoint to go on from under the job's [checkpoint] resume; *from NULL for a fresh start.
 * ERR_USAGE if the folder's content forbids what the job asks for.  Collective on c. */
int output_find(const struct job *j, struct comm *c, struct arena *a, struct ckpt **from);

/* Make the folder, see that it can be written and has room for the next checkpoint, move old
 * checkpoints away under overwrite, store the resolved job as job.ini.  *run_id in r->arena: the
 * resumed run's or a new one.  ERR_RESOURCE; ERR_DATA: the folder may not be written.
 * Collective on r->comm. */
int output_prepare(const struct run *r, const char *job_text, const char **run_id);
