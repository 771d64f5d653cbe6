/* Named tensors to be read, whatever holds them: a checkpoint, safetensors (one file, several with
 * an index, or a folder of Hugging Face's), llama2.c's and llm.c's .bin.  Opened, names, sizes and
 * places have been checked against the files; values are read by ranges, so memory stays bounded.
 * Files are untrusted input. */
#pragma once
#include "ckpt/ckpt.h"

struct source;

/* One format; source_list tries them in their order. */
struct source_ops {
    const char *name;
    /* Whether path (a file with these first bytes, or a folder) looks like this format. */
    bool (*fits)(const char *path, bool is_dir, const unsigned char head[8]);
    /* Fill arrays and what else the format knows.  ERR_DATA. */
    int (*open)(struct source *s);
    int (*read)(const struct source *s, int i, int64_t begin, int64_t end, void *values);
    void (*close)(struct source *s);
};

extern const struct source_ops hdf5_source, checkpoint_source, safetensors_source, index_source,
    llama2c_source, llmc_source;
extern const struct source_ops *const source_list[]; /* NULL-terminated */

struct source {
    const struct source_ops *ops;
    struct arena *arena;             /* owned */
    const char *path;                /* as given, or what was found under it */
    const struct ckpt_array *arrays; /* names as they are in the file; dtype DTYPE_COUNT: unknown */
    int n_arrays;
    const char *const *dtype_words; /* (n_arrays) the format's own words, or NULL */
    const struct json *config; /* the model in the words of Hugging Face's config.json, or NULL */
    const struct json *meta;   /* what the format keeps beside the tensors, or NULL */
    struct ckpt *ckpt;         /* owned: of a checkpoint, else NULL */
    void *impl;                /* owned by ops */
};

/* Open what: a file, a step folder, a run's folder, its `latest`, or a folder with
 * model.safetensors(.index.json).  ERR_DATA.  Local. */
int source_open(const char *what, struct source **out);
void source_close(struct source **s);

/* The same on every rank of c: of a folder that is written meanwhile all open what rank 0 found.
 * ERR_DATA.  Collective on c. */
int source_open_shared(struct comm *c, const char *what, struct source **out);

/* The number of an array, or -1.  Local. */
int source_find(const struct source *s, const char *group, const char *name);

/* Elements [begin, end) of array i in its own dtype.  ERR_DATA.  Local. */
int source_read(const struct source *s, int i, int64_t begin, int64_t end, void *values);

/* For the formats: a file opened for reading, *n_bytes of it.  ERR_DATA if it is no regular file.
 * Local. */
int source_open_file(const char *path, int *fd, int64_t *n_bytes);
/* Arrays whose values stand in a file one behind another as they are. */
struct source_place {
    int file;       /* into files */
    int64_t offset; /* byte of the first element */
};
struct source_files {
    int n;
    const char **path;
    int *fd;                    /* owned */
    struct source_place *place; /* (n_arrays) */
};
/* read and close of formats whose impl is struct source_files.  Local. */
int source_files_read(const struct source *s, int i, int64_t begin, int64_t end, void *values);
void source_files_close(struct source *s);
struct source_files *source_files_new(struct source *s, int n_files, int n_arrays); /* Local. */

/* config.json beside a file, or NULL if there is none.  ERR_DATA if it cannot be read.  Local. */
int source_config(struct source *s, const char *folder);
