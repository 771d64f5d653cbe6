/* The plan: who holds what, how big it is, and in what order it moves.  Pure: no memory for values,
 * no device, no messages, so it can be made for any number of ranks on a login node. */
#pragma once
#include "model/model.h"
#include "parallel/policy.h"

/* A part of the module tree whose parameters lie in one flat range and move together. */
struct plan_unit {
    struct module *module; /* whose hooks belong to the unit */
    const int *row;        /* its tensors in execution order */
    int n_rows;
    int64_t begin, n_elem; /* range in the model's flat arrays; multiples of BLOCK_ELEMS */
    const int64_t *cut;    /* (size + 1) from the unit's begin: rank r owns [cut[r], cut[r + 1]) */
};

/* Where a tensor lies.  It starts at a multiple of BLOCK_ELEMS and shards are cut only there, so
 * that block sums, per-tensor ranges and file ranges never straddle ranks. */
struct plan_place {
    int unit;
    int64_t begin; /* in the model's flat arrays */
};

struct plan {
    const struct policy *policy;
    int size; /* ranks that share the model */
    int n_units, n_rows;
    struct plan_unit *unit;
    struct plan_place *place; /* by row */
    int64_t n_elem;           /* of the flat arrays, padding included */
    int64_t n_params;         /* without padding */
};

/* How much one micro-batch needs, from a dry run of the model. */
struct plan_memory {
    size_t tape_bytes, frame_bytes, scratch_bytes;
};

/* Cut the tree into units: one for each module whose class is in classes (NULL-terminated, or NULL:
 * the family's own block), the root for the rest.  All in the arena a.  Local. */
struct plan *plan_make(const struct model *m, const struct policy *policy,
                       const char *const *classes, int size, struct arena *a);

enum pass_kind { PASS_TRAIN, PASS_EVAL, PASS_LOGITS }; /* LOGITS: of the last position only */

/* Tape, frames and scratch of one micro-batch of B samples of T tokens.  Local. */
void plan_measure(const struct model *m, const struct device *dev, int64_t B, int64_t T,
                  enum pass_kind kind, struct plan_memory *out);

/* The part [*begin, *end) of tensor row, counted from its first element, that rank owns.  Local. */
void plan_own_part(const struct plan *p, const struct model *m, int row, int rank, int64_t *begin,
                   int64_t *end);
