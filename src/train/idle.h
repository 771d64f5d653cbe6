/* Keys that do nothing beside the others that a job has. */
#pragma once
#include "base/text.h"
#include "train/conf.h"

/* A line for each that is set, and not to its default, with the reason.  Local. */
void idle_notes(const struct run_conf *c, struct text *out);
