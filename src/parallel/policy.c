/* The rows. */
#include "parallel/policy.h"

#include "base/text.h"

/* The ways to shard, as columns: params, grads, optim. */
#define WHOLE .keep_after_forward = true
#define OPTIM .shard_optim = true, .keep_after_forward = true
#define GRADS .shard_grads = true, .shard_optim = true, .keep_after_forward = true
#define PARAMS .shard_params = true, .shard_grads = true, .shard_optim = true

const struct policy policy_list[] = {
    {"NO", "one rank", GROUP_SELF, WHOLE},
    {"MULTI_CPU", "DDP: whole model on every rank, gradients summed", GROUP_ALL, WHOLE},
    {"LOCAL_SGD", "own steps, weights averaged every so many", GROUP_SELF, WHOLE, .averages = true},
    {"NO_SHARD", "FSDP without sharding: as DDP", GROUP_ALL, WHOLE},
    {"SHARD_GRAD_OP", "FSDP: parameters whole from forward to backward", GROUP_ALL, PARAMS,
     .keep_after_forward = true},
    {"FULL_SHARD", "FSDP: parameters whole one unit at a time", GROUP_ALL, PARAMS},
    {"HYBRID_SHARD", "FSDP: FULL_SHARD in a node, replicas across nodes", GROUP_NODE, PARAMS},
    {"HYBRID_SHARD_ZERO2", "FSDP: SHARD_GRAD_OP in a node, replicas across nodes", GROUP_NODE,
     PARAMS, .keep_after_forward = true},
    {"ZERO_0", "DeepSpeed ZeRO stage 0: as DDP", GROUP_ALL, WHOLE},
    {"ZERO_1", "DeepSpeed ZeRO stage 1: optimizer sharded", GROUP_ALL, OPTIM},
    {"ZERO_2", "DeepSpeed ZeRO stage 2: optimizer and gradients sharded", GROUP_ALL, GRADS},
    {"ZERO_3", "DeepSpeed ZeRO stage 3: everything sharded", GROUP_ALL, PARAMS},
    {.name = NULL},
};

const struct policy *policy_find(const char *name)
{
    for (const struct policy *p = policy_list; p->name; p++)
        if (text_same(p->name, name))
            return p;
    return NULL;
}
