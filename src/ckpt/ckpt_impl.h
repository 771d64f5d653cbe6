/* What the files of ckpt/ share: the manifest in memory, and each file's part of a save or load. */
#pragma once
#include "ckpt/ckpt.h"

#define CKPT_FORMAT "stretto-1"
#define CKPT_FILE "full.h5"
#define CKPT_MANIFEST "manifest.json"

enum {
    CKPT_ALIGN = 4096,       /* every array starts at a multiple of this in the file */
    CKPT_CUT_BYTES = 1 << 20 /* ranges are cut where the file position is a multiple of this */
};

/* Elements [begin, end) of an array and the hash64 of their bytes. */
struct ckpt_range {
    int64_t array, begin, end;
    uint64_t hash;
};

/* Bytes of the file that belong to no array. */
struct ckpt_gap {
    int64_t offset, n_bytes;
    uint64_t hash;
};

struct manifest {
    int64_t step;
    const char *run_id;
    int64_t n_bytes; /* of full.h5 */
    struct ckpt_gap *gaps;
    int64_t n_gaps;
    const struct ckpt_array *arrays;
    int n_arrays;
    int64_t *offset;           /* (n_arrays) byte in the file */
    struct ckpt_range *ranges; /* by array, then by begin */
    int64_t *first_range;    /* (n_arrays + 1) array i owns [first_range[i], first_range[i + 1]) */
    const struct json *meta; /* when read */
    const char *meta_text;   /* when written */
};

/* manifest.c: create the file and fsync it.  Local. */
int manifest_write(const struct manifest *m, const char *path);
/* The last member and what stands behind it, from the bytes before: 64 bytes hold it.  Local. */
void manifest_tail(const char *bytes, size_t n_bytes, char tail[64]);

/* manifest_read.c: read and check everything that can be checked without full.h5.  ERR_DATA.
 * Local. */
int manifest_read(const char *path, struct arena *a, struct manifest *m);

/* check.c: names and shapes that a file may hold; code is the status if one may not.  Local. */
int array_check(const struct ckpt_array *x, int code);
/* Pointers to the arrays, sorted by group and name; code if two are the same.  Local. */
int arrays_sort(const struct ckpt_array *arrays, int n, struct arena *a, int code,
                const struct ckpt_array ***sorted);
/* This rank's arguments of a save.  ERR_INTERNAL.  Local. */
int save_check(const struct ckpt_save *s, bool is_root, struct arena *a);
/* Whatever has to be the same on all ranks, in one number.  Local. */
uint64_t save_hash(const struct ckpt_save *s);
/* Sort the ranges of all ranks and prove that they cover every array once.  ERR_INTERNAL.
 * first_range as in struct manifest.  Local. */
int cover_check(const struct ckpt_save *s, struct ckpt_range *ranges, int64_t n_ranges,
                int64_t *first_range);

/* layout.c: create path with every group, dataset and attribute, and no values.  offset
 * (n_arrays).  Local: rank 0. */
int layout_create(const char *path, int64_t step, const struct ckpt_array *arrays, int n_arrays,
                  int64_t *offset);

/* gaps.c: the parts of a file of n_bytes that no array covers, in pieces of at most
 * CKPT_CUT_BYTES, not yet hashed.  code if the arrays overlap or leave the file.  Local. */
int gaps_find(const struct manifest *m, struct arena *a, int code, struct ckpt_gap **gaps,
              int64_t *n_gaps);
/* The hash of one gap as it stands in the file.  Local. */
int gap_hash(int fd, const char *path, const struct ckpt_gap *g, uint64_t *hash);

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
/* Make the run's folder and an empty step-N.tmp; ERR_RESOURCE if the disk has not n_bytes. */
int commit_begin(struct commit *k, struct arena *a, const char *run_dir, int64_t step,
                 int64_t n_bytes);
/* Make it durable under its own name, move `latest`, delete what keep lets go. */
int commit_end(struct commit *k, int rank, const char *run_id, int64_t keep);
/* After a failure before the rename: remove step-N.tmp, keep the error text. */
void commit_undo(struct commit *k);
