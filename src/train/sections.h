/* Private to train/: the kinds of sections that sections.c describes. */
#pragma once
#include "job/job.h"

extern const struct section_kind kind_job, kind_strategy, kind_eval, kind_checkpoint, kind_plugin;

/* Read all keys of [plugin.NAME] (NULL: [plugin]), so that a plugin that rests is checked too.
 * ERR_USAGE.  Local. */
int plugin_check(const struct job *j, const char *name);
