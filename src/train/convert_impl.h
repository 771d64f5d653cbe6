/* Private to convert: the list of what is written, whatever it is written to. */
#pragma once
#include "train/adapters.h"
#include "train/convert.h"

/* One tensor that is written. */
struct item {
    struct ckpt_array x;
    int weight; /* of the source's weights; -1: zeros */
    int array;  /* of the source's arrays instead (moments), or -1 */
    struct adapter adapter;
};

struct converting {
    struct comm *c; /* borrowed, as the next */
    const struct convert_conf *conf;
    struct arena *a; /* owned */
    struct source_model m;
    struct item *items;
    struct ckpt_array *arrays; /* of the items */
    int n;
    int open_adapter;  /* the item whose adapter is in memory, or -1 */
    struct text *said; /* borrowed */
};

/* Room for n more items; the array of the next one, filled in but for what it is.  Local. */
void convert_room(struct converting *v, size_t n);
struct item *convert_add(struct converting *v, const char *name, const struct ckpt_array *x);
/* arrays from the items, when all are listed.  Local. */
void convert_close_list(struct converting *v);

/* Elements [begin, end) of item i in its own dtype, for both targets' writers.  Local. */
int convert_fetch(void *self, int i, int64_t begin, int64_t end, void *to);

/* A key of the model has this value.  Local. */
bool convert_key_is(const struct converting *v, const char *key, const char *value);

/* The two targets.  Collective on v->c. */
int convert_to_safetensors(struct converting *v, const char *dst);
int convert_to_checkpoint(struct converting *v, const char *dst);

/* convert_cut.c: which elements go to which file, and who writes them. */
struct cutting {
    struct ckpt_piece *pieces; /* this rank's */
    int n_pieces, n_files;
    const char *meta; /* what the checkpoint says of the run */
};
/* meta: as the source has it; a local checkpoint that training may go on from is cut as the job's
 * strategy on conf->ranks ranks cuts, and says so in its meta.  ERR_USAGE: it does not go on so
 * many.  Local. */
int convert_cut(struct converting *v, enum ckpt_type type, const char *meta, struct cutting *out);
