/* Values of one dtype as another, on the host: for files, not for steps. */
#pragma once
#include "tensor/tensor.h"

bool dtype_is_float(enum dtype t); /* Local. */

/* n_elem values of from at in as to at out (apart from each other), rounded to nearest, ties to
 * even; a NaN stays one.  Returns how many finite values became infinite.  Equal types are copied;
 * else both must be floats.  Local. */
int64_t dtype_convert(enum dtype to, void *out, enum dtype from, const void *in, int64_t n_elem);

/* n_elem values of a float or integer type as doubles.  Local. */
void dtype_to_f64(double *out, enum dtype from, const void *in, int64_t n_elem);
