/* The strategy table: a strategy is a row, not a program.  The engine reads the columns; no code
 * asks which row it has. */
#pragma once
#include <stdbool.h>

struct policy {
    const char *name;    /* accelerate's distributed_type, or its strategy word */
    const char *summary; /* for people */
    bool several_ranks;  /* group: all ranks (else one alone) */
};

extern const struct policy policy_list[]; /* ends with .name == NULL */

/* The row called name, or NULL.  Local. */
const struct policy *policy_find(const char *name);
