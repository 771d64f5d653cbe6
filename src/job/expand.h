/* $VAR and ~ in values. */
#pragma once
#include "base/arena.h"

/* Replace $VAR and ${VAR} by the environment's, $$ by $, then ~/ (or ~ alone) at the start or
 * behind a list's comma or [ by $HOME.  *out is value itself where nothing changes, else in a.
 * ERR_USAGE without a place: an unknown variable, a $ that begins no name, ~user, an empty result,
 * a result that is no line's value.  Local. */
int expand_value(const char *value, struct arena *a, const char **out);
