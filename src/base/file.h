/* Whole files and folders, with errors that name the path. */
#pragma once
#include "base/err.h"
#include <stdint.h>
#include <sys/types.h>

/* Read a regular file of at most max_bytes.  *out is owned by the caller (free) and has a NUL
 * behind its last byte.  code is the status on failure.  Local. */
int file_read(const char *path, size_t max_bytes, int code, char **out, size_t *n_bytes);

/* Write all bytes to an open descriptor, at its position or at offset.  Local. */
int file_write_fd(int fd, const char *path, const void *bytes, size_t n_bytes);
int file_pwrite_fd(int fd, const char *path, const void *bytes, size_t n_bytes, int64_t offset);
int file_pread_fd(int fd, const char *path, void *bytes, size_t n_bytes, int64_t offset);

/* Ask the kernel to begin to write these bytes of a file to the disk now, so that an fsync later
 * finds little left to wait for: the disk works while the next bytes are made.  Only advice.
 * Local. */
void file_write_early(int fd, int64_t offset, size_t n_bytes);

/* Create path (replacing it) with these bytes and fsync it.  Local. */
int file_write(const char *path, const void *bytes, size_t n_bytes);

/* fsync a folder, so that names made or moved in it survive a crash.  Local. */
int file_sync_dir(const char *path);

/* mkdir -p.  Local: call it on one rank. */
int file_make_dirs(const char *path);

/* rm -r of what path names, without following links; a missing path is fine.  Local. */
int file_remove_tree(const char *path);
