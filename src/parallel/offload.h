/* Arrays on disk: fp32 arrays of one rank in an unlinked file, streamed through a few buffers while
 * something is computed on them, and mapped for whoever wants a pointer (checkpoints, first
 * values).  The file takes its whole room when it is made, so that no later write can find the disk
 * full; it is gone when the process is, however that ends. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { OFFLOAD_ARRAYS_MAX = 4, OFFLOAD_ALIGN = 4096 };

struct text;

struct offload_conf {
    const char *dir;     /* NULL: nothing is on disk */
    int64_t tile_elems;  /* elements of each array that are in memory at once, twice */
    bool states, master; /* what is on disk */
    bool read_ahead;     /* read the next tile while one is computed on */
    bool write_behind;   /* write the last one meanwhile */
    /* How: a word of offload_methods, NULL as auto, the first that this machine has; the others are
     * of io_uring. */
    const char *io_method;
    int64_t block_bytes; /* of a transfer: a multiple of OFFLOAD_ALIGN */
    int queue_depth;     /* transfers in the kernel's hands at once */
    bool single_submit;  /* handed over one by one */
    bool overlap_events; /* a new one as soon as one is done, not when all are */
};

extern const char *const offload_methods[];

struct offload;

/* n_arrays arrays of array_elems[i] elements, multiples of 1,024, all zero.  ERR_RESOURCE names the
 * folder and the bytes that are missing, or the io_method that is not to be had.  Starts a thread.
 * Local. */
int offload_create(const struct offload_conf *conf, int n_arrays, const int64_t *array_elems,
                   struct offload **out);
void offload_destroy(struct offload **o);

/* Bytes of memory that streaming n_arrays arrays takes.  Local, pure. */
int64_t offload_buffer_elems(const struct offload_conf *conf, int n_arrays);

/* How it reads and writes, and why not in a better way.  Local. */
void offload_describe(const struct offload *o, struct text *out);

/* Array i as memory: reads and writes go to the file.  Local. */
float *offload_array(const struct offload *o, int i);

/* Let go of the pages that somebody looked at.  Local. */
void offload_forget(struct offload *o);

/* A piece [begin, begin + n) of every array; 0 < n ≤ tile_elems.  Where tile_elems is a multiple of
 * 1,024, begin is one too, and what lies behind it until the next one is the tile's alone. */
struct offload_tile {
    int64_t begin, n;
    int64_t row, row_begin; /* the caller's own */
};

/* Call f for each tile in order, with its elements of each array in memory; what f writes there
 * goes back to the file.  Local. */
void offload_stream(struct offload *o, const struct offload_tile *tile, int64_t n_tiles,
                    void (*f)(void *arg, const struct offload_tile *tile, float *const *values),
                    void *arg);

/* ERR_RESOURCE, with its text, if the disk has failed since the file was made.  Local. */
int offload_status(struct offload *o);
