/* Private to train/: the kinds of sections that sections.c describes. */
#pragma once
#include "job/job.h"

extern const struct section_kind kind_job, kind_strategy, kind_eval, kind_checkpoint;
/* The row of key in any section of a kind, that of a variant included; must exist.  Local. */
const struct opt *section_row(const char *kind, const char *key, struct arena *a); /* conf.c */

const struct section_kind *plugin_kind(struct arena *a); /* plugin.c.  Local. */
