/* Private to parallel/: units at run time. */
#pragma once
#include "parallel/shard.h"

/* Bytes of node memory that a unit's weights had, until all ranks have made that mark. */
struct unit_place {
    size_t begin, end;
    uint32_t mark;
};

struct shard_unit {
    struct shard *shard;
    const struct plan_unit *plan;
    struct hooks hooks;
    void *copy;                  /* whole, compute dtype, for good; NULL: none */
    int64_t own_begin;           /* of this rank's part in arrays of parts */
    const int64_t *replica_cut;  /* owned by shard: parts of the own part, by replica; or NULL */
    const int64_t *second_cut;   /* owned by shard: parts of the ranks of second; or NULL */
    char *second_part;           /* this rank's, in the compute dtype; NULL: it never leaves */
    size_t gathered_at, grad_at; /* places in the pools */
    struct unit_place left;      /* where its weights were */
    float *unit_grad;            /* whole; NULL unless its gradient is being formed or summed */
    struct comm_task gather, sum, replica_sum, replica_share, share;
    bool is_shared; /* share has been started */
};

/* Elements of each part that are summed at once on P ranks.  Local. */
int64_t shard_slice_elems(const struct shard_conf *conf, int P);

/* Whether this unit's weights have a place of their own in the compute dtype, for good.  Local. */
bool shard_has_copy(const struct plan *p, const struct plan_unit *u, const struct shard_conf *conf);

/* Whether a unit's weights leave after forward to parts that a few ranks keep.  Local. */
bool shard_has_second(const struct plan *p, const struct plan_unit *u,
                      const struct shard_conf *conf);

/* Where the part of rank r of those begins: what the neighbours around it own of the unit, in the
 * same order.  Local. */
static inline int64_t shard_second_cut(const struct plan *p, const struct plan_unit *u,
                                       const struct shard_conf *conf, int r)
{
    return u->cut[r * (p->size / conf->second_size)];
}

/* Where element begin of a row has its copy in the compute dtype; NULL: nowhere.  Local. */
void *shard_copy_at(const struct shard *s, int row, int64_t begin);

/* Gradients are formed in a buffer of the unit and added to the step's when they are summed.
 * Local. */
bool shard_forms_in_unit(const struct policy *row, const struct shard_conf *conf);

/* Bytes, so that what lies one behind the other in node memory begins with a page.  Local. */
static inline size_t shard_pages(size_t n_bytes)
{
    return (n_bytes + 4095) / 4096 * 4096;
}

/* Point the rows of a unit at its weights and at where its gradient is formed.  Local. */
void unit_point_weights(struct shard_unit *x, void *whole, size_t elem_bytes);
void unit_point_grads(struct shard_unit *x, float *whole);

/* Say that what lies where a unit's gradient is formed is no gradient yet.  And, behind its
 * backward, clear what is still none and what lies between its tensors.  Local. */
void unit_unset_grads(struct shard_unit *x);
void unit_clear_unset(struct shard_unit *x);

/* The four hooks, and what they do when.  Collective on the shard's comm, but for a dry pass. */
extern const struct hooks unit_hooks;
extern const struct flow_ops shard_flow_ops;

/* Wait for what the step's last micro-batch has left under way.  Collective on the shard's comm. */
void shard_finish(struct shard *s);

/* Element pos of a unit (counted in the unit) in an array that is whole or of parts.  Local. */
static inline float *shard_at(const struct shard *s, const struct shard_unit *x, float *array,
                              bool parts, int64_t pos)
{
    return parts ? array + x->own_begin + pos - x->plan->cut[s->comm->rank]
                 : array + x->plan->begin + pos;
}
