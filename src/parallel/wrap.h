/* Private to parallel/: which modules become units, and whose rows are whose. */
#pragma once
#include "parallel/plan.h"

struct cut_tree {
    int n_units;
    struct module **unit_module; /* (n_units), outer before inner, in execution order */
    bool *encloses, *early_grad; /* (n_units) */
    int *unit_of;                /* (n_rows) */
    int persistent;              /* the unit of parameters that are never freed; -1: none */
};

/* What the family calls a class that users know by another name.  Local. */
const char *wrap_own_name(const struct model *m, const char *cls);

/* Local.  Everything in a.  sharded: parameters are, so that small ones may be an exception. */
void wrap_cut(const struct model *m, const struct wrap *wrap, bool sharded, struct arena *a,
              struct cut_tree *out);
