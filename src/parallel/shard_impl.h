/* Private to parallel/: units at run time. */
#pragma once
#include "parallel/shard.h"

struct shard_unit {
    struct shard *shard;
    const struct plan_unit *plan;
    struct hooks hooks;
    struct shard_unit *frozen;  /* the same module's frozen tensors, whose hooks this one calls */
    void *copy;                 /* whole, compute dtype, for good; NULL: none */
    int64_t own_begin;          /* of this rank's part in arrays of parts */
    const int64_t *replica_cut; /* owned by shard: parts of the own part, by replica; or NULL */
    struct shard_unit *rider;   /* begins and ends with this unit; NULL: none */
    bool is_gathered;
    void *gathered;   /* whole, compute dtype; valid while is_gathered */
    float *unit_grad; /* whole; NULL unless its gradient is being formed */
    size_t gathered_mark, grad_mark;
};

/* Elements of each part that are summed at once on P ranks.  Local. */
int64_t shard_slice_elems(const struct shard_conf *conf, int P);

/* Whether this unit's weights have a place of their own in the compute dtype, for good.  Local. */
bool shard_has_copy(const struct plan *p, const struct plan_unit *u, const struct shard_conf *conf);

/* Where element begin of a row has its copy in the compute dtype; NULL: nowhere.  Local. */
void *shard_copy_at(const struct shard *s, int row, int64_t begin);

/* Gradients are formed in a buffer of the unit and added to the step's when they are summed.
 * Local. */
bool shard_forms_in_unit(const struct shard *s);

/* Point the rows of a unit at its weights and at where its gradient is formed.  Local. */
void unit_point_weights(struct shard_unit *x, void *whole, size_t elem_bytes);
void unit_point_grads(struct shard_unit *x, float *whole);

/* The four hooks.  Collective on the shard's comm, but for a dry pass. */
extern const struct hooks unit_hooks;

/* Element pos of a unit (counted in the unit) in an array that is whole or of parts.  Local. */
static inline float *shard_at(const struct shard *s, const struct shard_unit *x, float *array,
                              bool parts, int64_t pos)
{
    return parts ? array + x->own_begin + pos - x->plan->cut[s->comm->rank]
                 : array + x->plan->begin + pos;
}
