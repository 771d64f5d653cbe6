/* Checkpoints: OUTPUT_DIR/step-00001000/ with HDF5 files and manifest.json, written last.
 *
 *   FULL_STATE_DICT     full.h5: groups /model, /optim/NAME; a dataset a tensor, true name and
 *                       shape, readable by h5py as it is.  Rank 0 lays it out, every rank writes
 *                       its ranges in place: nobody gathers the model.
 *   SHARDED_STATE_DICT  shard-00000-of-00004.h5: a file a rank or a node, the same groups and
 *                       names; a part of a tensor is a flat dataset that says its begin and the
 *                       tensor's shape.
 *   LOCAL_STATE_DICT    the same files, each group as it lies in memory: /local/GROUP/DTYPE.
 *
 * HDF5 lays files out in memory (contiguous, early allocation, no fill, libver V18, aligned to
 * 4 KiB) and never moves values: those are written by offset with pwrite.  The manifest says where
 * each range of each tensor lies, with a checksum of it and of every byte between: it is checked
 * before anyone reads.  So whatever the type, a reader sees arrays and ranges, never files.
 * Commit: write step-N.tmp, fsync files and folder, rename, fsync the parent, move `latest` by
 * rename, and only then delete what keep lets go, of this run only.  A step that is saved again
 * steps aside as step-N.old for that moment.  Only rank 0 makes, renames and removes; only one job
 * at a time may save into a folder.  A checkpoint knows names, shapes and ranges, not plans. */
#pragma once
#include "base/json.h"
#include "base/text.h"
#include "comm/comm.h"
#include "tensor/tensor.h"

enum ckpt_type { CKPT_FULL, CKPT_SHARDED, CKPT_LOCAL };
extern const char *const ckpt_type_words[]; /* FULL_STATE_DICT, …; NULL-terminated */

/* One tensor.  All ranks pass the same list in the same order. */
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
    const void *values; /* host memory; borrowed; NULL: fetched while it is written */
    int shard;          /* file that takes it: a rank's are rank, rank + size, …; FULL: 0 */
};

/* SHARDED: a file that several ranks write to, as those of a node may. */
struct ckpt_shared_file {
    int file;                        /* that all of this rank's pieces go to; -1: it has none */
    bool makes;                      /* of the ranks that share it this one lays it out */
    const struct ckpt_piece *others; /* of the other ranks in it, without values; borrowed */
    int n_others;
};

struct ckpt_save {
    const char *output_dir;
    int64_t step;
    const char *run_id; /* of this run: keep deletes no other run's steps */
    enum ckpt_type type;
    int n_shards;       /* files of SHARDED and LOCAL */
    int64_t keep;       /* newest checkpoints to keep; 0: all */
    int64_t keep_every; /* steps that are multiples of it stay as well; 0: none */
    bool is_best;       /* move the link `best` here; what it names stays as well */
    const struct ckpt_array *arrays;
    int n_arrays;
    const struct ckpt_piece *pieces; /* this rank's */
    int n_pieces;
    const struct ckpt_shared_file *shared; /* borrowed; NULL: a rank's files are its own */
    const char *meta; /* a JSON object as text: whatever the trainer wants back; rank 0's counts */
    /* Elements [begin, end) of an array whose piece has no values, at most 1 MiB of them: what is
     * larger than memory is saved like that. */
    int (*fetch)(void *self, int array, int64_t begin, int64_t end, void *to);
    void *self;
    bool past_cache; /* who else uses the processor comes first; see base/file_once.h */
};

/* Write and commit.  ERR_RESOURCE (disk full, not writable) leaves every older checkpoint and
 * nothing of the new one, unless the text says "is saved": then only a link or the deletion of
 * older ones failed.  ERR_INTERNAL: names, shapes or pieces that no checkpoint can hold (every
 * dimension is at least 1, names have no '/', every element has one rank).  Collective on c. */
int ckpt_save(struct comm *c, const struct ckpt_save *s);

/* Bytes on disk that a save needs, about.  Local. */
int64_t ckpt_bytes(const struct ckpt_array *arrays, int n_arrays, enum ckpt_type type,
                   int n_shards);

struct ckpt;

struct ckpt_file {
    const char *name; /* in the step's folder */
    int64_t n_bytes;
    uint64_t hash; /* of the place and checksum of every part of it, in order */
};

/* The step folder that what names: a step folder, a run's folder (its newest complete step), or
 * its `latest` or `best`.  *dir in a; NULL if a run's folder holds none yet.  A broken `latest` or
 * a step without manifest is passed over for the newest complete one.  ERR_DATA: what is not there,
 * is a file, or is a step folder whose save was not finished.  Local. */
int ckpt_find(const char *what, struct arena *a, const char **dir);

/* Read and check the manifest of a step folder and its files (presence, sizes, bytes between the
 * ranges).  ERR_DATA names what is missing, wrong or not of this checkpoint.  Local. */
int ckpt_open(const char *dir, struct ckpt **out);

/* The manifest alone; a file is opened and its size checked when it is first read.  Local. */
int ckpt_open_manifest(const char *dir, struct ckpt **out);

/* As ckpt_open, at the price of one: rank 0 reads the manifest of its dir for all, each rank checks
 * its share of the files.  *out NULL where rank 0's dir is.  Collective on c. */
int ckpt_open_shared(struct comm *c, const char *dir, struct ckpt **out);

/* The checkpoint that what names, as rank 0's ckpt_find() finds it; *out NULL if it is a run's
 * folder that holds none.  Where the run goes on saving, and deletes the step that was found before
 * its files are open, the one after it.  Collective on c. */
int ckpt_open_found(struct comm *c, const char *what, struct ckpt **out);
void ckpt_close(struct ckpt **k);

/* One file: presence, size, bytes between the ranges.  ERR_DATA names it.  Local. */
int ckpt_check_file(const struct ckpt *k, int i);
/* HDF5 files in the folder that the manifest does not list.  ERR_DATA names one.  Local. */
int ckpt_check_strangers(const struct ckpt *k);

/* All are Local. */
const char *ckpt_dir(const struct ckpt *k);
int64_t ckpt_step(const struct ckpt *k);
const char *ckpt_run_id(const struct ckpt *k);
enum ckpt_type ckpt_type_of(const struct ckpt *k);
const struct json *ckpt_meta(const struct ckpt *k); /* the object given to ckpt_save */
int ckpt_n_files(const struct ckpt *k);
const struct ckpt_file *ckpt_file_at(const struct ckpt *k, int i);
int ckpt_n_arrays(const struct ckpt *k);
const struct ckpt_array *ckpt_array_at(const struct ckpt *k, int i);
int64_t ckpt_bytes_read(const struct ckpt *k); /* of values, by ckpt_read on this rank */

/* The number of an array, or -1.  Local. */
int ckpt_array_find(const struct ckpt *k, const char *group, const char *name);

/* The first way in which group's arrays differ from the expected ones (missing with the nearest
 * name, shape, dtype, layout, one too many): ERR_DATA.  One float dtype may stand for another, see
 * ckpt_read_as().  expected's own group is not looked at, nor its layout where that is NULL.
 * Local. */
int ckpt_match(const struct ckpt *k, const char *group, const struct ckpt_array *expected, int n);

/* Elements [begin, end) of array i, whatever files they are in; checks the checksum of every range
 * that it touches.  ERR_DATA names file, array and range.  Local; one thread at a time. */
int ckpt_read(const struct ckpt *k, int i, int64_t begin, int64_t end, void *values);

/* The same in another dtype, both floats: rounded to the nearest.  ERR_DATA also where a finite
 * value would become infinite.  Local; one thread at a time. */
int ckpt_read_as(const struct ckpt *k, int i, enum dtype as, int64_t begin, int64_t end,
                 void *values);
