/* Parameter groups, [group.NAME]: rates, weight decay and freezing by tensor names.  Groups are
 * looked through in the order of the file; the first that matches a tensor has it. */
#pragma once
#include "job/job.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "tensor/tensor.h"

struct group_conf {
    struct opt_strs match;
    double lr, lr_scale;
    double weight_decay;
    int frozen; /* enum group_frozen */
};
enum group_frozen { FROZEN_AUTO, FROZEN_TRUE, FROZEN_FALSE };

extern const struct section_kind kind_group;

struct groups {
    int n;
    const char *const *name; /* of [group.NAME]; NULL: [group] */
    struct group_conf *conf;
    int *of_row; /* -1: in none */
};

/* All group sections.  ERR_USAGE.  Local. */
int groups_read(const struct job *j, struct arena *a, struct groups *out);

/* Find each tensor's group, and set or clear TENSOR_FROZEN in rows whose group says so.  ERR_USAGE:
 * a pattern or a group that matches nothing, or nothing left to train.  Local. */
int groups_assign(const struct job *j, struct groups *g, struct tensor_table *t, struct arena *a);

/* What a step is made of where no group says otherwise. */
struct groups_base {
    const struct optim_conf *optim;
    const struct schedule_conf *schedule;
    int64_t total_steps;
};

/* step (by row) from all: rate and decay by the row's group.  A group's own lr takes the place of
 * the optimizer's, and of the scheduler's warmup_max_lr or cycle_max_lr, as the peak (LRRangeTest:
 * as the first rate).  Local. */
void groups_step(const struct groups *g, const struct tensor_table *t,
                 const struct groups_base *base, const struct optim_step *all,
                 struct optim_step *step);

/* A line for each group: its tensors, and what is special about them.  Local. */
void groups_describe(const struct groups *g, const struct tensor_table *t, struct text *out);
