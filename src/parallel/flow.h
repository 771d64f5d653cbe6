/* When a unit's weights are gathered and freed, and its gradient is formed and summed, as a pass
 * goes through the model.  The same rules drive the shard engine and, without memory, its plan, so
 * the bytes that the plan counts are those that a run takes.
 *
 * Source: Zhao et al. 2023, arXiv:2304.11277 (FSDP's prefetch and rate limiter). */
#pragma once
#include "parallel/plan.h"

/* When backward begins to gather the unit that comes next: never before it is needed, behind a
 * unit's computation, or in front of it. */
enum prefetch { PREFETCH_NONE, PREFETCH_POST, PREFETCH_PRE };

struct overlap {
    enum prefetch backward;
    bool forward;        /* gather the next unit in front of a unit's computation in forward, too */
    int ahead;           /* modules that are gathered at most before they are needed … */
    int64_t ahead_elems; /* … as long as those before them have fewer elements together */
    bool sums;           /* a gradient is summed while the next unit's is formed */
};

/* What happens to unit.  now: the next call is the one that waits for it.  leaves: its weights go
 * for the first time since forward, and come back for backward; again: they are what left. */
struct flow_ops {
    void (*gather)(void *self, int unit, bool again, bool now);
    void (*need)(void *self, int unit);
    void (*release)(void *self, int unit, bool leaves);
    void (*form)(void *self, int unit);
    void (*sum)(void *self, int unit, bool now);
    void (*end_sum)(void *self, int unit);
};

struct flow_unit {
    bool gathered, needed, forming;
    bool left; /* in this micro-step's forward */
};

struct flow {
    const struct plan *plan; /* borrowed */
    struct overlap overlap;
    const struct flow_ops *ops;
    void *self;
    bool forms; /* a gradient is formed in a buffer of the unit */
    /* of modules, each by its first unit: how many, and how many have a backward; their order in
     * forward and in backward, and the places in both of a unit */
    int n_modules, n_backward;
    int *forward, *backward, *forward_place, *backward_place; /* owned */
    struct flow_unit *unit;                                   /* owned */
    int reached;    /* place in backward of the unit that it entered last */
    bool backwards; /* the root's backward goes on: forward is run again, if anything */
    int rider;      /* unit of what persists and is trained: goes with the root; 0: none */
    int *summing;   /* owned: units whose sums are under way, oldest first */
    int n_summing;
};

/* Local. */
void flow_init(struct flow *f, const struct plan *p, const struct overlap *o, bool forms,
               const struct flow_ops *ops, void *self);
void flow_clear(struct flow *f);

/* What the hooks of a module say, unit being its first one.  sums: this pass's gradients are to be
 * summed.  Local, as far as the operations are. */
void flow_before_forward(struct flow *f, int unit, bool training);
void flow_after_forward(struct flow *f, int unit, bool training);
void flow_before_backward(struct flow *f, int unit);
void flow_after_backward(struct flow *f, int unit, bool sums);

/* What a run of the rules takes. */
struct flow_needs {
    size_t gathered, grads;   /* bytes of whole weights, of elem_bytes each, and of units' gradients
                               that training and evaluation need at once at the most */
    int64_t n_first, n_again; /* elements that a training micro-step gathers: in forward, and of
                                 those again that had left */
};

/* Local. */
void flow_measure(const struct plan *p, const struct overlap *o, bool forms, size_t elem_bytes,
                  struct flow_needs *out);
