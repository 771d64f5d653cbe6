/* The rows. */
#include "parallel/policy.h"

#include "base/text.h"

const struct policy policy_list[] = {
    {.name = "NO", .summary = "one rank"},
    {.name = "MULTI_CPU",
     .summary = "DDP: whole model on every rank, gradients summed",
     .several_ranks = true},
    {.name = NULL},
};

const struct policy *policy_find(const char *name)
{
    for (const struct policy *p = policy_list; p->name; p++)
        if (text_same(p->name, name))
            return p;
    return NULL;
}
