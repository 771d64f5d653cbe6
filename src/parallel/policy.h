/* The strategy table: a strategy is a row, not a program.  The engine reads the columns; no code
 * asks which row it has.
 *
 *                  parameters           gradients                optimizer   after forward
 *   NO, DDP        whole                whole                    whole       keep
 *   ZeRO-1         whole                whole until the boundary sharded     keep
 *   ZeRO-2         whole                summed each micro-step   sharded     keep
 *   SHARD_GRAD_OP  sharded              summed each micro-step   sharded     keep until backward
 *   FULL_SHARD     sharded              summed each micro-step   sharded     free
 *   LOCAL_SGD      whole                each rank's own          whole       keep
 *
 * What FULL_SHARD and ZeRO-3 free after forward, a few neighbours may keep, each a part, until
 * backward: shard_conf's second_size.
 *
 * Sources: Rajbhandari et al. 2020, arXiv:1910.02054 (ZeRO); Zhao et al. 2023, arXiv:2304.11277
 * (FSDP); Wang et al. 2023, arXiv:2306.10209 (ZeRO++'s hpZ); Stich 2019, arXiv:1805.09767 (local
 * SGD). */
#pragma once
#include <stdbool.h>

/* Ranks that share one copy of what is sharded. */
enum policy_group {
    GROUP_SELF, /* one rank alone */
    GROUP_ALL,
    GROUP_NODE /* the ranks of a node; nodes hold replicas of each other */
};

struct policy {
    const char *name; /* FSDP's or DeepSpeed's word, or accelerate's distributed_type */
    const char *summary;
    enum policy_group group;
    bool shard_params; /* whole only around a unit's forward and backward */
    bool shard_grads;  /* summed over the ranks at every micro-step, own part kept */
    bool shard_optim;  /* master weights and moments: own part only */
    bool keep_after_forward;
    bool averages; /* every rank steps alone; now and then weights are averaged over the replicas */
};

extern const struct policy policy_list[]; /* ends with .name == NULL */

/* The row called name, or NULL.  Local. */
const struct policy *policy_find(const char *name);
