/* From [strategy] and its plugin to a row of the strategy table and a way to wrap. */
#pragma once
#include "parallel/flow.h"
#include "parallel/offload.h"
#include "train/conf.h"
#include "train/plugin.h"

struct strategy {
    const struct policy *policy;
    struct wrap wrap;
    struct overlap overlap;
    int n_ranks, group_size; /* group_size ranks share a copy of what is sharded */
    int second_size;         /* neighbours that are to keep what leaves after forward; 0: none */
    const char *second_key;  /* of the plugin: says so */
    struct offload_conf offload;
    int64_t reduce_bucket; /* elements that are summed at once; 0: the engine's own choice */
    const char *plugin;    /* name of the plugin in use, "" for [plugin]; NULL: none */
};

/* What the job asks for on n_ranks, node_size of them on a node (0: not known).  ERR_USAGE with a
 * hint where they do not fit.  Local. */
int strategy_choose(const struct run_conf *c, int n_ranks, int node_size, struct arena *a,
                    struct strategy *out);

/* The plugin's key asks for n neighbours that keep what leaves after forward.  ERR_USAGE where
 * groups of out are no whole number of those.  Local. */
int strategy_keep_second(const struct run_conf *c, const struct plugin *p, const char *key,
                         int64_t n, struct strategy *out);

/* Whole on every rank: for evaluation and generation.  Local. */
void strategy_whole(int n_ranks, struct strategy *out);

/* Hold the strategy against the model: sizes that were left to it, and every class to be wrapped
 * must be in it, or ERR_USAGE lists those that are.  Local. */
int strategy_fit(const struct run_conf *c, const struct model *m, struct strategy *s);

/* A line for each section and key that has no effect on this run, and why.  Local. */
void strategy_notes(const struct run_conf *c, const struct strategy *s, struct text *out);
