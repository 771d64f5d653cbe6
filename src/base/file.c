/* Whole-file helpers over POSIX. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_read(const char *path, size_t max_bytes, int code, char **out, size_t *n_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        FAIL(code, "cannot open %s: %s", path, strerror(errno));
    int rc = ERR_OK;
    char *buf = NULL;
    struct stat st;
    if (fstat(fd, &st) != 0)
        rc = err_set(code, "cannot stat %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(code, "%s is not a regular file", path);
    else if ((uintmax_t)st.st_size > max_bytes)
        rc = err_set(code, "%s is too large: %jd bytes, at most %zu", path, (intmax_t)st.st_size,
                     max_bytes);
    else if (!(buf = malloc((size_t)st.st_size + 1)))
        rc = err_set(ERR_RESOURCE, "no memory for the %jd bytes of %s", (intmax_t)st.st_size, path);
    if (rc == ERR_OK)
        rc = file_pread_fd(fd, path, buf, (size_t)st.st_size, 0);
    close(fd);
    if (rc != ERR_OK) {
        free(buf);
        return rc;
    }
    buf[st.st_size] = 0;
    *out = buf;
    *n_bytes = (size_t)st.st_size;
    return ERR_OK;
}

int file_write_fd(int fd, const char *path, const void *bytes, size_t n_bytes)
{
    const char *p = bytes;
    while (n_bytes > 0) {
        ssize_t n = write(fd, p, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            FAIL(ERR_RESOURCE, "cannot write %s: %s", path, strerror(errno));
        p += n;
        n_bytes -= (size_t)n;
    }
    return ERR_OK;
}

/* Some kernels take page cache in one block as large as a write.  Blocks of a MiB are what a
 * virtual machine's host has to find first: that made writes 2 to 4 times slower. */
enum { WRITE_MOST = 256 << 10 };

int file_pwrite_fd(int fd, const char *path, const void *bytes, size_t n_bytes, int64_t offset)
{
    const char *p = bytes;
    while (n_bytes > 0) {
        ssize_t n = pwrite(fd, p, n_bytes < WRITE_MOST ? n_bytes : WRITE_MOST, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            FAIL(ERR_RESOURCE, "cannot write %s: %s", path, strerror(errno));
        p += n;
        offset += n;
        n_bytes -= (size_t)n;
    }
    return ERR_OK;
}

void file_write_early(int fd, int64_t offset, size_t n_bytes)
{
    (void)sync_file_range(fd, (off_t)offset, (off_t)n_bytes, SYNC_FILE_RANGE_WRITE);
}

int file_pread_fd(int fd, const char *path, void *bytes, size_t n_bytes, int64_t offset)
{
    char *p = bytes;
    while (n_bytes > 0) {
        ssize_t n = pread(fd, p, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            FAIL(ERR_DATA, "cannot read %s: %s", path, strerror(errno));
        if (n == 0)
            FAIL(ERR_DATA, "%s is truncated: it ends at byte %jd", path, (intmax_t)offset);
        p += n;
        offset += n;
        n_bytes -= (size_t)n;
    }
    return ERR_OK;
}

int file_write(const char *path, const void *bytes, size_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        FAIL(ERR_RESOURCE, "cannot create %s: %s", path, strerror(errno));
    int rc = file_write_fd(fd, path, bytes, n_bytes);
    if (rc == ERR_OK && fsync(fd) != 0)
        rc = err_set(ERR_RESOURCE, "cannot sync %s: %s", path, strerror(errno));
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_set(ERR_RESOURCE, "cannot close %s: %s", path, strerror(errno));
    return rc;
}

int file_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        FAIL(ERR_RESOURCE, "cannot open folder %s: %s", path, strerror(errno));
    /* some file systems refuse fsync on a folder (EINVAL): they give no such promise at all */
    int rc = ERR_OK;
    if (fsync(fd) != 0 && errno != EINVAL)
        rc = err_set(ERR_RESOURCE, "cannot sync folder %s: %s", path, strerror(errno));
    close(fd);
    return rc;
}

int file_make_dirs(const char *path)
{
    char *part = strdup(path);
    if (!part)
        FATAL("out of memory");
    int rc = ERR_OK;
    for (char *c = part + 1; rc == ERR_OK; c++) {
        if (*c != '/' && *c != 0)
            continue;
        char end = *c;
        *c = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            rc = err_set(ERR_RESOURCE, "cannot make folder %s: %s", part, strerror(errno));
        *c = end;
        if (end == 0)
            break;
    }
    free(part);
    struct stat st;
    if (rc == ERR_OK && (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)))
        rc = err_set(ERR_RESOURCE, "%s is not a folder", path);
    return rc;
}

int file_remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return ERR_OK;
    if (!S_ISDIR(st.st_mode)) {
        if (unlink(path) != 0)
            FAIL(ERR_RESOURCE, "cannot remove %s: %s", path, strerror(errno));
        return ERR_OK;
    }
    DIR *d = opendir(path);
    if (!d)
        FAIL(ERR_RESOURCE, "cannot open folder %s: %s", path, strerror(errno));
    int rc = ERR_OK;
    for (struct dirent *e; rc == ERR_OK && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        size_t n = strlen(path) + strlen(e->d_name) + 2;
        char *child = malloc(n);
        if (!child)
            FATAL("out of memory");
        snprintf(child, n, "%s/%s", path, e->d_name);
        rc = file_remove_tree(child);
        free(child);
    }
    closedir(d);
    if (rc == ERR_OK && rmdir(path) != 0)
        rc = err_set(ERR_RESOURCE, "cannot remove %s: %s", path, strerror(errno));
    return rc;
}
