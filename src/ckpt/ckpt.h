/* Full checkpoints: OUTPUT_DIR/step-00001000/ with full.h5 (groups /model, /optim/NAME; one dataset
 * a tensor, true name and shape, readable by h5py as it is) and manifest.json, written last.
 *
 * Rank 0 lays the file out with serial HDF5 (contiguous, early allocation, no fill, libver V18,
 * 4 KiB alignment) and hands out the offsets; every rank writes its own ranges with pwrite: nobody
 * gathers the model, and HDF5 never runs on two ranks.  The manifest holds a checksum of every
 * range and of every byte between them; it is checked before HDF5 or anyone else reads.
 * Commit: write step-N.tmp, fsync files and folder, rename, fsync the parent, move `latest` by
 * rename, and only then delete what keep lets go, of this run only.  A step that is saved again
 * steps aside as step-N.old for that moment.  Only rank 0 makes, renames and removes; only one job
 * at a time may save into a folder.  A checkpoint knows names, shapes and ranges, not plans. */
#pragma once
#include "base/json.h"
#include "base/text.h"
#include "comm/comm.h"
#include "tensor/tensor.h"

/* One dataset.  All ranks pass the same list in the same order. */
struct ckpt_array {
    const char *group; /* "model", "optim/exp_avg", … */
    const char *name;
    struct shape shape;
    enum dtype dtype;
    const char *layout; /* attribute "layout"; a model array without it is not loaded */
    const char *alias;  /* attribute "alias", or NULL */
};

/* Elements [begin, end) of an array, held by this rank.  The pieces of all ranks together cover
 * every array exactly once. */
struct ckpt_piece {
    int array;
    int64_t begin, end;
    void *values; /* host memory; borrowed */
};

struct ckpt_save {
    const char *output_dir;
    int64_t step;
    const char *run_id; /* of this run: keep deletes no other run's steps */
    int64_t keep;       /* newest checkpoints to keep; 0: all */
    const struct ckpt_array *arrays;
    int n_arrays;
    const struct ckpt_piece *pieces; /* this rank's */
    int n_pieces;
    const char *meta; /* a JSON object as text: whatever the trainer wants back; rank 0's counts */
};

/* Write and commit.  ERR_RESOURCE (disk full, not writable) leaves every older checkpoint and
 * nothing of the new one, unless the text says "is saved": then only `latest` or the deletion of
 * older ones failed.  ERR_INTERNAL: names, shapes or pieces that no checkpoint can hold (every
 * dimension is at least 1, names have no '/', every element has one rank).  Collective on c. */
int ckpt_save(struct comm *c, const struct ckpt_save *s);

/* Bytes on disk that a save needs, about.  Local. */
int64_t ckpt_bytes(const struct ckpt_array *arrays, int n_arrays);

struct ckpt;

/* The step folder that what names: a step folder, a run's folder (its newest complete step), or
 * its `latest`.  *dir in a; NULL if a run's folder holds none yet.  A broken `latest` or a step
 * without manifest is passed over for the newest complete one.  ERR_DATA: what is not there, is a
 * file, or is a step folder whose save was not finished.  Local. */
int ckpt_find(const char *what, struct arena *a, const char **dir);

/* Read and check the manifest of a step folder (its own checksum, file sizes, bytes between the
 * ranges).  ERR_DATA names what is missing or wrong.  Local: several ranks may do it. */
int ckpt_open(const char *dir, struct ckpt **out);
void ckpt_close(struct ckpt **k);

const char *ckpt_dir(const struct ckpt *k);
int64_t ckpt_step(const struct ckpt *k);
const struct json *ckpt_meta(const struct ckpt *k); /* the object given to ckpt_save.  Local. */
int ckpt_n_arrays(const struct ckpt *k);
const struct ckpt_array *ckpt_array_at(const struct ckpt *k, int i);

/* The number of an array, or -1.  Local. */
int ckpt_array_find(const struct ckpt *k, const char *group, const char *name);

/* The first way in which group's arrays differ from the expected ones (missing with the nearest
 * name, shape, dtype, layout, one too many): ERR_DATA.  expected's own group is not looked at, nor
 * its layout where that is NULL.  Local. */
int ckpt_match(const struct ckpt *k, const char *group, const struct ckpt_array *expected, int n);

/* Elements [begin, end) of array i; checks the checksum of every range that it touches.  ERR_DATA
 * names array and range.  Local. */
int ckpt_read(const struct ckpt *k, int i, int64_t begin, int64_t end, void *values);
