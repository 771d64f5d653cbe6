/* Plugins: sections with the keys of another system.  A system is one file with a table of keys and
 * a row in plugin.c. */
#pragma once
#include "job/job.h"

struct plugin;
struct run_conf;
struct strategy;

struct plugin_type {
    const char *name; /* the word of [plugin] type */
    const struct opt *opts;
    size_t conf_bytes;
    int family; /* enum distributed_type that takes plugins of this type */
    /* What keys of one plugin must not say together, or not at all: ERR_USAGE.  Local. */
    int (*check)(const struct run_conf *c, const struct plugin *p);
    /* Let its keys stand for those of other sections; n_ranks 0: not known.  NULL: it has none of
     * those.  Local. */
    int (*adopt)(struct run_conf *c, const struct plugin *p, int n_ranks, struct arena *a);
    /* The row of the strategy table and what belongs to it.  Local. */
    int (*use)(const struct run_conf *c, const struct plugin *p, int node_size, struct arena *a,
               struct strategy *out);
    /* Lines for keys that have no effect beside the others.  NULL: plugin_notes() says all.
     * Local. */
    void (*notes)(const struct run_conf *c, const struct plugin *p, struct text *out);
};

extern const struct plugin_type plugin_fsdp;      /* fsdp.c */
extern const struct plugin_type plugin_deepspeed; /* deepspeed.c */

/* One plugin section, read. */
struct plugin {
    const char *section; /* "plugin.NAME" */
    const char *name;    /* NULL: [plugin], or none at all */
    const struct plugin_type *type;
    void *conf;
};

/* Read every plugin section, so that those that rest are checked too, and find the one in use: the
 * one that is named, or the only one of the wanted type, or that type's defaults; NULL: none.
 * Local. */
int plugin_find(const struct run_conf *c, struct arena *a, const struct plugin **out);

/* A line for each key of the plugin that is set and has no effect, and why.  Local. */
void plugin_notes(const struct run_conf *c, const struct plugin *p, struct text *out);

/* Keys whose help begins with "only": those that are there to be refused in words.  ERR_USAGE where
 * one is set to anything but its default.  Local. */
int plugin_refuse(const struct run_conf *c, const struct plugin *p);
