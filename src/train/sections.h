/* Private to train/: the kinds of sections that sections.c describes. */
#pragma once
#include "job/job.h"

extern const struct section_kind kind_job, kind_strategy, kind_eval, kind_checkpoint;
extern const struct section_kind kind_plugin; /* strategy.c */
