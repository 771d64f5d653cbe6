/* Figures of tensors, read in pieces. */
#pragma once
#include "ckpt/names.h"

struct tensor_stats {
    double min, max; /* of the values that are no NaN; NaN if there are none */
    double mean;     /* of the finite ones */
    double norm;     /* square root of the sum of squares of the finite ones */
    int64_t n_elem, n_nan, n_inf;
};

/* Tensor i.  ERR_DATA.  Local. */
int stats_read(const struct weights *w, int i, struct tensor_stats *out);

struct tensor_diff {
    bool bitwise;     /* the same dtype and the same bytes */
    double max_abs;   /* largest |a - b|; infinite where only one is NaN or they are not both inf */
    double max_rel;   /* largest |a - b| / max(|a|, |b|) */
    int64_t n_differ; /* values */
    int64_t first;    /* element where they differ first; -1: nowhere */
};

/* Tensor i of a against tensor k of b, of the same shape.  ERR_DATA.  Local. */
int stats_compare(const struct weights *a, int i, const struct weights *b, int k,
                  struct tensor_diff *out);
