/* What the files of ckpt/ share: the manifest in memory, and each file's part of a save or load. */
#pragma once
#include "ckpt/ckpt.h"

#define CKPT_FORMAT "stretto-2"
#define CKPT_MANIFEST "manifest.json"

enum {
    CKPT_ALIGN = 4096,        /* every dataset starts at a multiple of this in its file */
    CKPT_CUT_BYTES = 1 << 20, /* ranges are cut where the file position is a multiple of this */
    CKPT_MANIFEST_MAX_BYTES = 1 << 30
};

/* Elements [begin, end) of an array and the hash64 of their bytes; they start at byte offset of
 * file. */
struct ckpt_range {
    int64_t array, begin, end;
    uint64_t hash;
    int64_t file, offset;
};

/* Bytes of a file that belong to no array. */
struct ckpt_gap {
    int64_t file, offset, n_bytes;
    uint64_t hash;
};

struct manifest {
    int64_t step;
    const char *run_id;
    enum ckpt_type type;
    struct ckpt_file *files;
    int n_files;
    struct ckpt_gap *gaps; /* by file, then by offset */
    int64_t n_gaps;
    int64_t *first_gap; /* (n_files + 1) file i owns [first_gap[i], first_gap[i + 1]) */
    const struct ckpt_array *arrays;
    int n_arrays;
    struct ckpt_range *ranges; /* by array, then by begin */
    int64_t *first_range;    /* (n_arrays + 1) array i owns [first_range[i], first_range[i + 1]) */
    const struct json *meta; /* when read */
    const char *meta_text;   /* when written */
};

/* An open checkpoint: read.c, open.c, match.c. */
struct ckpt {
    struct arena *arena; /* owned */
    const char *dir;
    struct manifest m;
    const struct ckpt_array **sorted; /* by group and name */
    int *fd;                          /* (n_files) owned; -1: not open */
    int *n_open;
    int64_t *bytes_read;
};
/* An open file of the checkpoint, its size checked; end gives it back.  ERR_DATA.  Local. */
int ckpt_file_begin(const struct ckpt *k, int64_t i, int *fd);
void ckpt_file_end(const struct ckpt *k, int64_t i, int fd);
const char *ckpt_file_path(const struct ckpt *k, int64_t i, char *buf, size_t cap); /* Local. */

/* manifest.c: create the file and fsync it.  Local. */
int manifest_write(const struct manifest *m, const char *path);
/* The last member and what stands behind it, from the bytes before: 64 bytes hold it.  Local. */
void manifest_tail(const char *bytes, size_t n_bytes, char tail[64]);

/* manifest_read.c: read and check everything that can be checked without the files.  ERR_DATA.
 * path is for messages.  Local. */
int manifest_parse(const char *path, const char *text, size_t n_bytes, struct arena *a,
                   struct manifest *m);
int manifest_read(const char *path, struct arena *a, struct manifest *m);
/* Whose it is, from its first bytes alone: nothing else is checked.  ERR_DATA.  Local. */
int manifest_read_run(const char *path, struct arena *a, const char **run_id);

/* check.c: names and shapes that a file may hold; code is the status if one may not.  Local. */
int array_check(const struct ckpt_array *x, int code);
/* Pointers to the arrays, sorted by group and name; code if two are the same.  Local. */
int arrays_sort(const struct ckpt_array *arrays, int n, struct arena *a, int code,
                const struct ckpt_array ***sorted);
int64_t array_bytes(const struct ckpt_array *x); /* Local. */
/* This rank's arguments of a save.  ERR_INTERNAL.  Local. */
int save_check(const struct ckpt_save *s, const struct comm *c, struct arena *a);
/* Whatever has to be the same on all ranks, in one number.  Local. */
uint64_t save_hash(const struct ckpt_save *s);
/* Sort the ranges of all ranks and prove that they cover every array once.  ERR_INTERNAL.
 * first_range as in struct manifest.  Local. */
int cover_check(const struct ckpt_save *s, struct ckpt_range *ranges, int64_t n_ranges,
                int64_t *first_range);

/* place.c: what a file holds. */
struct dataset {
    const char *group, *name;
    enum dtype dtype;
    struct shape shape;
    const struct ckpt_array *of; /* whose layout, alias (and shape) it says; NULL: none */
    int64_t begin;               /* of a part of an array; -1: all of it */
    int64_t offset;              /* in the file: set by layout_create() */
};
/* A part of an array inside a dataset. */
struct placed {
    int array, dataset;
    int64_t begin, end;
    int64_t at; /* element of the dataset that begin is */
};
struct placement {
    struct dataset *set;
    int n_sets;
    struct placed *part; /* sorted by array, then by begin; disjoint */
    int n_parts;
};
/* The datasets of one file from the pieces that it takes (FULL: from the arrays).  ERR_INTERNAL if
 * pieces overlap.  Local, pure. */
int place_make(const struct ckpt_save *s, int shard, struct arena *a, struct placement *out);
/* Where an element of an array lies: byte in the file, -1 if it holds none.  Local. */
int64_t place_offset(const struct placement *p, int array, int64_t begin);
/* The name of file shard.  Local. */
const char *place_name(enum ckpt_type type, int shard, int n_shards, struct arena *a);

/* layout.c: every group, dataset and attribute of a file, and no values, in memory: *fd is to be
 * read and closed.  Sets each dataset's offset.  Local; one thread of the process at a time,
 * because HDF5 is. */
int layout_create(const char *path, int64_t step, struct placement *p, int *fd);

/* gaps.c: the parts of files that no array covers, in pieces of at most CKPT_CUT_BYTES, not yet
 * hashed.  code if spans overlap or leave their file; want ≥ 0: code if there are not as many.
 * spans get sorted.  Local. */
struct file_span {
    int64_t file, begin, end; /* bytes */
    const struct ckpt_array *of;
};
int gaps_find(struct file_span *spans, int64_t n_spans, const struct ckpt_file *files, int n_files,
              struct arena *a, int code, int64_t want, struct ckpt_gap **gaps, int64_t *n_gaps);
/* The hash of one gap as it stands in the file.  Local. */
int gap_hash(int fd, const char *path, const struct ckpt_gap *g, uint64_t *hash);
/* The hash of every file from its ranges and gaps.  hash (n_files).  Local. */
void files_hash(const struct manifest *m, struct arena *a, uint64_t *hash);

/* steps.c: the steps in a run's folder. */
struct step_entry {
    int64_t step;
    const char *name; /* of its folder */
};
/* Complete ones (with a manifest), oldest first.  A folder set aside while its step was replaced
 * (.old) counts only where the step itself is not there.  Local. */
int steps_list(const char *run_dir, struct arena *a, struct step_entry **steps, int *n_steps);
/* Whether name is that of a step's folder; *suffix is what stands behind the number.  Local. */
bool step_parse(const char *name, int64_t *step, const char **suffix);
bool step_complete(const char *dir); /* Local. */
/* Finish what a crash interrupted: remove *.tmp, bring back or remove *.old.  Local: rank 0. */
int steps_tidy(const char *run_dir);

/* commit.c: the folder of a save, from step-N.tmp to step-N.  Local: rank 0. */
struct commit {
    const char *run_dir, *tmp_dir, *step_dir, *old_dir, *step_name; /* borrowed: in an arena */
    bool made;                                                      /* tmp_dir is ours to remove */
};
/* Make the run's folder and an empty step-N.tmp; ERR_RESOURCE if the disk has not n_bytes, or may
 * not have a file of file_bytes. */
int commit_begin(struct commit *k, struct arena *a, const char *run_dir, int64_t step,
                 int64_t n_bytes, int64_t file_bytes);
/* Make it durable under its own name, move `latest` (and `best`), delete what s->keep lets go. */
int commit_end(struct commit *k, int rank, const struct ckpt_save *s);
/* After a failure before the rename: remove step-N.tmp, keep the error text. */
void commit_undo(struct commit *k);

/* save.c: a save in phases.  The work of a phase is local and may run on another thread; between
 * phases all ranks exchange. */
struct saving;
/* Check, and copy s and its pieces, but neither values nor arrays nor meta.  Collective on c. */
int saving_create(struct comm *c, const struct ckpt_save *s, struct saving **out);
int saving_work(struct saving *v); /* Local: this phase's. */
/* rc: what saving_work said.  *done: the save is over, well or not.  Collective on c. */
int saving_advance(struct saving *v, int rc, bool *done);
void saving_cancel(struct saving *v);   /* make saving_work return soon.  Local; any thread. */
void saving_destroy(struct saving **v); /* Local. */
