/* Rates that go up and down: DeepSpeed's OneCycle and LRRangeTest.  Private to schedule.c. */
#pragma once
#include "optim/schedule.h"

/* Rate of step k ≥ 1.  lr: the optimizer's, where conf leaves peak or start to it.  Local. */
double cycle_one_lr(const struct schedule_conf *c, double lr, int64_t k);
double cycle_range_lr(const struct schedule_conf *c, double lr, int64_t k);
/* First beta of step k, mirrored to the rate; below 1.  Local. */
double cycle_one_momentum(const struct schedule_conf *c, int64_t k);
