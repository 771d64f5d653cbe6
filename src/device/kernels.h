/* Private to device/: the table for a dry run. */
#pragma once
#include "device/device.h"

/* Entries that do nothing, sizes as in full.  Local. */
void kernels_make_null(struct kernels *null, const struct kernels *full);
