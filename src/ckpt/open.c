/* An open checkpoint: its manifest, and its files as they are needed. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OPEN = 512 }; /* half of what a process may have open by default */

static int manifest_open(const char *dir, const char *text, size_t n_bytes, struct ckpt **out)
{
    struct ckpt *k = calloc(1, sizeof *k);
    if (!k)
        FATAL("out of memory");
    k->arena = arena_create();
    k->dir = arena_strdup(k->arena, dir);
    const char *path = arena_printf(k->arena, "%s/%s", dir, CKPT_MANIFEST);
    int rc = text ? manifest_parse(path, text, n_bytes, k->arena, &k->m)
                  : manifest_read(path, k->arena, &k->m);
    if (rc == ERR_OK) {
        rc = arrays_sort(k->m.arrays, k->m.n_arrays, k->arena, ERR_DATA, &k->sorted);
        if (rc != ERR_OK)
            err_prefix("%s", path);
    }
    k->n_open = arena_alloc(k->arena, sizeof *k->n_open);
    k->bytes_read = arena_alloc(k->arena, sizeof *k->bytes_read);
    if (rc == ERR_OK) {
        k->fd = arena_alloc(k->arena, (size_t)k->m.n_files * sizeof *k->fd);
        for (int i = 0; i < k->m.n_files; i++)
            k->fd[i] = -1;
    } else {
        ckpt_close(&k);
    }
    *out = k;
    return rc;
}

int ckpt_open_manifest(const char *dir, struct ckpt **out)
{
    return manifest_open(dir, NULL, 0, out);
}

void ckpt_close(struct ckpt **k)
{
    if (!*k)
        return;
    for (int i = 0; (*k)->fd && i < (*k)->m.n_files; i++)
        if ((*k)->fd[i] >= 0)
            close((*k)->fd[i]);
    arena_destroy(&(*k)->arena);
    free(*k);
    *k = NULL;
}

const char *ckpt_file_path(const struct ckpt *k, int64_t i, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s/%s", k->dir, k->m.files[i].name);
    return buf;
}

static int check_size(const struct ckpt *k, int64_t i, int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        FAIL(ERR_DATA, "%s is not a regular file", path);
    if (st.st_size != k->m.files[i].n_bytes)
        FAIL(ERR_DATA,
             "%s has %lld bytes, its manifest says %lld: it is damaged or of another "
             "checkpoint",
             path, (long long)st.st_size, (long long)k->m.files[i].n_bytes);
    return ERR_OK;
}

/* What is open stays readable even if keep deletes the folder meanwhile. */
int ckpt_file_begin(const struct ckpt *k, int64_t i, int *fd)
{
    char path[4096];
    *fd = k->fd[i];
    if (*fd >= 0)
        return ERR_OK;
    ckpt_file_path(k, i, path, sizeof path);
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT)
        FAIL(ERR_DATA, "%s is missing", path);
    if (*fd < 0)
        FAIL(ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    int rc = check_size(k, i, *fd, path);
    if (rc != ERR_OK) {
        close(*fd);
    } else if (*k->n_open < MOST_OPEN) {
        k->fd[i] = *fd;
        ++*k->n_open;
    }
    return rc;
}

void ckpt_file_end(const struct ckpt *k, int64_t i, int fd)
{
    if (k->fd[i] != fd)
        close(fd);
}

/* A file that is not what the manifest says may be another shard of the same folder. */
static int not_this_file(const struct ckpt *k, int i, int fd, const struct ckpt_gap *bad)
{
    char path[4096];
    ckpt_file_path(k, i, path, sizeof path);
    for (int f = 0; f < k->m.n_files; f++) {
        bool same = f != i && k->m.files[f].n_bytes == k->m.files[i].n_bytes;
        for (int64_t g = k->m.first_gap[f]; same && g < k->m.first_gap[f + 1]; g++) {
            uint64_t hash = 0;
            TRY(gap_hash(fd, path, &k->m.gaps[g], &hash));
            same = hash == k->m.gaps[g].hash;
        }
        if (same)
            FAIL(ERR_DATA, "%s is a copy of %s, not what its name says", path, k->m.files[f].name);
    }
    FAIL(ERR_DATA,
         "%s is damaged in bytes [%lld, %lld), or of another checkpoint: their checksum "
         "is wrong",
         path, (long long)bad->offset, (long long)(bad->offset + bad->n_bytes));
}

static int check_gaps(const struct ckpt *k, int i, int fd)
{
    char path[4096];
    ckpt_file_path(k, i, path, sizeof path);
    for (int64_t g = k->m.first_gap[i]; g < k->m.first_gap[i + 1]; g++) {
        uint64_t hash = 0;
        TRY(gap_hash(fd, path, &k->m.gaps[g], &hash));
        if (hash != k->m.gaps[g].hash)
            return not_this_file(k, i, fd, &k->m.gaps[g]);
    }
    return ERR_OK;
}

int ckpt_check_file(const struct ckpt *k, int i)
{
    int fd;
    if (i < 0 || i >= k->m.n_files)
        FAIL(ERR_INTERNAL, "file %d of a checkpoint of %d", i, k->m.n_files);
    TRY(ckpt_file_begin(k, i, &fd));
    int rc = check_gaps(k, i, fd);
    ckpt_file_end(k, i, fd);
    return rc;
}

int ckpt_check_strangers(const struct ckpt *k)
{
    DIR *d = opendir(k->dir);
    if (!d)
        FAIL(ERR_DATA, "cannot open folder %s: %s", k->dir, strerror(errno));
    int rc = ERR_OK;
    for (struct dirent *e; rc == ERR_OK && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        bool known = n < 3 || strcmp(e->d_name + n - 3, ".h5") != 0;
        for (int f = 0; !known && f < k->m.n_files; f++)
            known = strcmp(e->d_name, k->m.files[f].name) == 0;
        if (!known)
            rc = err_set(ERR_DATA,
                         "%s/%s is not of this checkpoint: its manifest lists %d file%s, "
                         "%s first",
                         k->dir, e->d_name, k->m.n_files, k->m.n_files == 1 ? "" : "s",
                         k->m.files[0].name);
    }
    closedir(d);
    return rc;
}

/* Every n_parts-th file from part on; the first part looks for strangers as well. */
static int check_share(const struct ckpt *k, int part, int n_parts)
{
    if (part == 0)
        TRY(ckpt_check_strangers(k));
    for (int i = part; i < k->m.n_files; i += n_parts)
        TRY(ckpt_check_file(k, i));
    return ERR_OK;
}

int ckpt_open(const char *dir, struct ckpt **out)
{
    TRY(ckpt_open_manifest(dir, out));
    int rc = check_share(*out, 0, 1);
    if (rc != ERR_OK)
        ckpt_close(out);
    return rc;
}

/* Rank 0: the folder's name and the manifest behind it, NUL between; nothing where dir is NULL. */
static int pack(const char *dir, struct text *t)
{
    char *bytes, path[4096];
    size_t n_bytes;
    if (!dir)
        return ERR_OK;
    snprintf(path, sizeof path, "%s/%s", dir, CKPT_MANIFEST);
    TRY(file_read(path, CKPT_MANIFEST_MAX_BYTES, ERR_DATA, &bytes, &n_bytes));
    text_add(t, dir, strlen(dir) + 1);
    text_add(t, bytes, n_bytes);
    free(bytes);
    return ERR_OK;
}

int ckpt_open_shared(struct comm *c, const char *dir, struct ckpt **out)
{
    struct text t = {0};
    *out = NULL;
    TRY_ALL(c, c->rank == 0 ? pack(dir, &t) : ERR_OK);
    char *bytes = t.s;
    size_t n_bytes = t.n_bytes;
    comm_share_bytes(c, &bytes, &n_bytes);
    int rc = ERR_OK;
    if (n_bytes > 0) {
        size_t n = strlen(bytes) + 1;
        rc = manifest_open(bytes, bytes + n, n_bytes - n, out);
    }
    if (rc == ERR_OK && *out)
        rc = check_share(*out, c->rank, c->size);
    if (c->rank == 0)
        text_clear(&t);
    else
        free(bytes);
    rc = comm_agree(c, rc);
    if (rc != ERR_OK)
        ckpt_close(out);
    return rc;
}

int ckpt_open_found(struct comm *c, const char *what, struct ckpt **out)
{
    enum { TRIES = 100 }; /* each of them is a whole save of somebody else's */
    struct arena *a = arena_create();
    int rc = ERR_OK;
    int64_t again = 1;
    *out = NULL;
    for (int i = 0; i < TRIES && again; i++) {
        const char *dir = NULL;
        rc = comm_agree(c, c->rank == 0 ? ckpt_find(what, a, &dir) : ERR_OK);
        if (rc == ERR_OK)
            rc = ckpt_open_shared(c, dir, out);
        again = rc != ERR_OK && dir && !step_complete(dir);
        c->ops->max_i64(c, &again, 1);
    }
    arena_destroy(&a);
    return rc;
}
