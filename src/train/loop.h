/* The training loop. */
#pragma once
#include "train/setup.h"

/* Train run to its end.  job_text: the resolved job, stored with every checkpoint.  ERR_STOPPED
 * after a request to stop and a save; ERR_DIVERGED.  Collective on run->comm. */
int loop_train(struct run *run, struct device *dev, const char *job_text);
