/* Data: a source knows its samples by number and fills arrays with them; the sampler (sampler.h)
 * says which numbers a rank takes at which global position.  A source reads its files at open; an
 * error names the file with line or byte and is ERR_DATA, or ERR_USAGE where a key of the job does
 * not fit a sound file.  Files packed by gzip (told by their first bytes) are unpacked.  One file a
 * source, one line in data_list.c. */
#pragma once
#include "data/vocab.h"
#include "job/opt.h"
#include "tensor/batch.h"

/* Keys that every source has, [data] or [data.NAME]. */
struct data_conf {
    int type; /* index into data_type_words: auto, then data_list's names */
    const char *path;
    double split;       /* share that is trained on, the rest is for evaluation; NaN: auto */
    int64_t batch_size; /* per rank and micro-step; all ranks together if split_batches */
    bool split_batches;
    bool shuffle;
};
extern const struct opt data_opts[];
extern const char *const data_type_words[];

enum data_part { DATA_TRAIN, DATA_EVAL };

/* Where sample arrays go: the start of one row each; NULL where the kind has none. */
struct batch_row {
    int32_t *ids;     /* (T) */
    int32_t *targets; /* (T) or (1) */
    float *features;  /* (n_in) */
    float *values;    /* (n_out) */
};

struct data;

struct data_ops {
    const char *name;            /* the word of [data] type */
    const char *const *suffixes; /* file name endings that mean this type under auto, .gz aside */
    const struct opt *opts;      /* this type's own keys */
    size_t conf_bytes;
    /* Read and check everything; fills shape (T stays 0), vocab or classes, state.  A vocab that
     * is already there is the one to use.  close() follows a failure as well.  Local. */
    int (*open)(struct data *d, const void *conf);
    /* Samples of the two parts when a sample has T tokens (T is ignored without tokens).  Sets
     * d->n_samples[].  ERR_DATA if a part that is needed would be empty.  Local. */
    int (*cut)(struct data *d, int64_t T);
    /* Targets of sample i that count (a last short window has fewer than T).  Local. */
    int64_t (*n_valid)(const struct data *d, enum data_part part, int64_t i);
    /* Fill one row; ids past the end are 0 with target -1.  Local. */
    void (*get)(const struct data *d, enum data_part part, int64_t i, const struct batch_row *row);
    void (*close)(struct data *d);
};

struct data {
    const struct data_ops *ops;
    const struct data_conf *conf; /* borrowed */
    struct arena *arena;          /* borrowed */
    uint64_t seed;                /* of the random split */
    const struct data *like;      /* borrowed: whose classes and scale of features are this one's,
                                     too; NULL: it has its own */
    struct sample_shape shape;
    const struct vocab *vocab;  /* tokens only, else NULL */
    const char *const *classes; /* names of the shape.vocab classes as in the file, or NULL */
    int64_t n_samples[2];       /* by part, after cut */
    void *state;                /* owned by the source */
};

extern const struct data_ops *const data_list[]; /* NULL-terminated */

/* The source that conf asks for; under auto by the end of the file's name, else by its first bytes
 * (idx or, as anything can be, text).  ERR_DATA/ERR_USAGE, then *key names the offending key
 * ("path", "type").  Local. */
int data_type_of(const struct data_conf *conf, const struct data_ops **ops, const char **key);

/* Open a source with its own conf (read by ops->opts).  known: a vocabulary from a checkpoint to
 * use instead of the file's own, or NULL.  like: the open source of the same type that is trained
 * on, where this one is to evaluate what comes of it, else NULL; it stays open as long.  Owned by
 * the caller until data_close, which nulls it; data_close of NULL is fine.  The ops' cut() comes
 * next.  Local. */
int data_open(const struct data_ops *ops, const struct data_conf *conf, const void *own_conf,
              uint64_t seed, const struct vocab *known, const struct data *like, struct arena *a,
              struct data **out);
void data_close(struct data **d);
