/* A large file that is written once, in pieces: only the last 64 MiB of it stay in the page cache,
 * so that a checkpoint pushes nobody's pages out and needs no more free ones. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { FILE_ONCE_PIECES = 64, FILE_ONCE_BLOCK = 4096 };

struct file_once {
    int fd, direct; /* direct: past the page cache; -1: not asked for, or not to be had */
    const char *path;
    /* Pieces that were written and are still in the page cache, a ring of ranges. */
    int first, n_pieces;
    int64_t n_bytes;
    struct {
        int64_t begin, end;
    } piece[FILE_ONCE_PIECES];
};

/* Open path, borrowed, for writing; flags are open's, as O_CREAT.  past_cache: where the file
 * system can, large pieces go to the disk at once and not through the page cache.  That takes about
 * half the processor time, but the caller waits for the disk with each piece, so it is for who
 * writes behind others' work.  ERR_RESOURCE.  Local. */
int file_once_open(struct file_once *f, const char *path, int flags, bool past_cache);

/* Bytes may go past the page cache where their address is offset modulo FILE_ONCE_BLOCK, but for
 * the parts of blocks at either end.  ERR_RESOURCE.  Local. */
int file_once_write(struct file_once *f, const void *bytes, size_t n_bytes, int64_t offset);

/* What was written is on the disk when this returns ERR_OK.  rc: what came before; where that is an
 * error, it is returned and nothing is waited for.  Local. */
int file_once_close(struct file_once *f, int rc);
