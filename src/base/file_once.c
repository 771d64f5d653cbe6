/* Writing that leaves the page cache: behind the last pieces, or past it from the start. */
#include "base/file_once.h"

#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { HELD_BYTES = 64 << 20, GAP_BYTES = 64 << 10, DIRECT_LEAST = 64 << 10 };

int file_once_open(struct file_once *f, const char *path, int flags, bool past_cache)
{
    *f = (struct file_once){.path = path, .direct = -1};
    f->fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
    if (f->fd < 0)
        FAIL(ERR_RESOURCE, "cannot open %s: %s", path, strerror(errno));
    if (past_cache)
        f->direct = open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
    return ERR_OK;
}

/* The oldest piece; where `drop`, once the disk has it, out of memory too. */
static void shift(struct file_once *f, bool drop)
{
    off_t at = (off_t)f->piece[f->first].begin, n = (off_t)f->piece[f->first].end - at;
    if (drop) {
        (void)sync_file_range(f->fd, at, n,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
        (void)posix_fadvise(f->fd, at, n, POSIX_FADV_DONTNEED);
    }
    f->n_bytes -= n;
    f->first = (f->first + 1) % FILE_ONCE_PIECES;
    f->n_pieces--;
}

/* The disk is to begin with these bytes; old ones leave. */
static void follow(struct file_once *f, int64_t offset, size_t n_bytes)
{
    int64_t end = offset + (int64_t)n_bytes, begin = offset, last;
    file_write_early(f->fd, offset, n_bytes);
    while (f->n_pieces > 0 && f->n_bytes + (int64_t)n_bytes > HELD_BYTES)
        shift(f, true);
    last = (f->first + f->n_pieces + FILE_ONCE_PIECES - 1) % FILE_ONCE_PIECES;
    int64_t gap = f->n_pieces > 0 ? offset - f->piece[last].end : -1;
    bool goes_on = gap >= 0 && gap <= GAP_BYTES && end - f->piece[last].begin <= HELD_BYTES / 8;
    if (goes_on) {
        begin = f->piece[last].end;
    } else {
        if (f->n_pieces == FILE_ONCE_PIECES) /* of many small ones the first may stay */
            shift(f, false);
        last = (f->first + f->n_pieces++) % FILE_ONCE_PIECES;
        f->piece[last].begin = offset;
    }
    f->piece[last].end = end;
    f->n_bytes += end - begin;
}

static int write_cached(struct file_once *f, const void *bytes, size_t n_bytes, int64_t offset)
{
    if (n_bytes == 0)
        return ERR_OK;
    TRY(file_pwrite_fd(f->fd, f->path, bytes, n_bytes, offset));
    follow(f, offset, n_bytes);
    return ERR_OK;
}

/* Whole blocks.  Returns the bytes that the disk has: where the file system or the disk refuses,
 * whatever the reason, the page cache takes all from then on, and names what is really wrong. */
static size_t write_direct(struct file_once *f, const char *bytes, size_t n_bytes, int64_t offset)
{
    size_t n_done = 0;
    while (n_done < n_bytes && f->direct >= 0) {
        off_t at = (off_t)(offset + (int64_t)n_done);
        ssize_t n = pwrite(f->direct, bytes + n_done, n_bytes - n_done, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n > 0)
            n_done += (size_t)n;
        if (n <= 0 || n % FILE_ONCE_BLOCK != 0) {
            close(f->direct);
            f->direct = -1;
        }
    }
    return n_done;
}

int file_once_write(struct file_once *f, const void *bytes, size_t n_bytes, int64_t offset)
{
    const char *p = bytes;
    size_t head = (size_t)(-offset & (FILE_ONCE_BLOCK - 1));
    size_t body = n_bytes > head ? (n_bytes - head) / FILE_ONCE_BLOCK * FILE_ONCE_BLOCK : 0;
    bool fits = ((uintptr_t)p + head) % FILE_ONCE_BLOCK == 0 && body >= DIRECT_LEAST;
    if (f->direct < 0 || !fits)
        return write_cached(f, p, n_bytes, offset);
    TRY(write_cached(f, p, head, offset));
    size_t n_done = head + write_direct(f, p + head, body, offset + (int64_t)head);
    return write_cached(f, p + n_done, n_bytes - n_done, offset + (int64_t)n_done);
}

int file_once_close(struct file_once *f, int rc)
{
    if (rc == ERR_OK && fsync(f->fd) != 0)
        rc = err_set(ERR_RESOURCE, "cannot sync %s: %s", f->path, strerror(errno));
    if (f->direct >= 0)
        close(f->direct);
    if (close(f->fd) != 0 && rc == ERR_OK)
        rc = err_set(ERR_RESOURCE, "cannot close %s: %s", f->path, strerror(errno));
    return rc;
}
