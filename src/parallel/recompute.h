/* Activation checkpointing: which modules keep their input only and run forward again in backward.
 * Source: Chen et al. 2016, arXiv:1604.06174. */
#pragma once
#include "model/model.h"

struct recompute {
    bool on;
    /* NULL-terminated, the family's aliases are known; NULL: its blocks */
    const char *const *classes;
    int64_t every;  /* 1: all of them, 2: every second one, …, in execution order */
    int64_t number; /* 0: as every says; else at most so many, evenly spread */
};

/* Mark m's modules, those that a change of r no longer wants too; *n of them are marked.  ERR_USAGE
 * lists the model's classes where one is unknown, or says why one cannot be run again.  Local. */
int recompute_mark(const struct model *m, const struct recompute *r, int *n);
