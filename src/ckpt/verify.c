/* ckpt_open() stops at the first fault, this goes on to the last. */
#include "ckpt/verify.h"

#include "base/file.h"
#include "base/hash.h"
#include "ckpt/ckpt_impl.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULT(n, faults, ...)                                                                      \
    do {                                                                                           \
        (n)->n_faults++;                                                                           \
        text_printf((faults), "bad: ");                                                            \
        text_printf((faults), __VA_ARGS__);                                                        \
        text_printf((faults), "\n");                                                               \
    } while (0)

/* Bytes between the ranges: HDF5's own, and what alignment leaves. */
static void check_gaps(const struct ckpt *k, int file, int fd, const char *path,
                       struct verify_tally *n, struct text *faults)
{
    for (int64_t i = k->m.first_gap[file]; i < k->m.first_gap[file + 1]; i++) {
        const struct ckpt_gap *g = &k->m.gaps[i];
        uint64_t hash = 0;
        n->n_bytes += g->n_bytes;
        if (gap_hash(fd, path, g, &hash) != ERR_OK) {
            FAULT(n, faults, "%s", err_text());
        } else if (hash != g->hash) {
            FAULT(n, faults, "%s, bytes [%lld, %lld): their checksum is wrong", path,
                  (long long)g->offset, (long long)(g->offset + g->n_bytes));
        }
    }
}

static void check_range(const struct ckpt *k, const struct ckpt_range *r, int fd, const char *path,
                        char *bytes, struct verify_tally *n, struct text *faults)
{
    const struct ckpt_array *x = &k->m.arrays[r->array];
    size_t n_bytes = (size_t)(r->end - r->begin) * dtype_bytes(x->dtype);
    n->n_ranges++;
    n->n_bytes += (int64_t)n_bytes;
    if (file_pread_fd(fd, path, bytes, n_bytes, r->offset) != ERR_OK) {
        FAULT(n, faults, "%s", err_text());
        return;
    }
    if (hash64(bytes, n_bytes, 0) == r->hash)
        return;
    FAULT(n, faults,
          "%s, bytes [%lld, %lld): %s/%s, elements [%lld, %lld): their checksum is wrong", path,
          (long long)r->offset, (long long)(r->offset + (int64_t)n_bytes), x->group, x->name,
          (long long)r->begin, (long long)r->end);
}

static void check_file(const struct ckpt *k, int file, char *bytes, struct verify_tally *n,
                       struct text *faults)
{
    char path[4096];
    int fd;
    n->n_files++;
    ckpt_file_path(k, file, path, sizeof path);
    if (ckpt_file_begin(k, file, &fd) != ERR_OK) {
        FAULT(n, faults, "%s", err_text());
        return;
    }
    check_gaps(k, file, fd, path, n, faults);
    for (int64_t r = 0; r < k->m.first_range[k->m.n_arrays]; r++)
        if (k->m.ranges[r].file == file)
            check_range(k, &k->m.ranges[r], fd, path, bytes, n, faults);
    ckpt_file_end(k, file, fd);
}

static bool is_listed(const struct ckpt *k, const char *name)
{
    for (int i = 0; i < k->m.n_files; i++)
        if (strcmp(k->m.files[i].name, name) == 0)
            return true;
    return false;
}

static void check_strangers(const struct ckpt *k, struct verify_tally *n, struct text *faults)
{
    DIR *d = opendir(k->dir);
    if (!d) {
        FAULT(n, faults, "cannot open folder %s: %s", k->dir, strerror(errno));
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 3 || strcmp(e->d_name + len - 3, ".h5") != 0 || is_listed(k, e->d_name))
            continue;
        FAULT(n, faults, "%s/%s is no file of this checkpoint", k->dir, e->d_name);
    }
    closedir(d);
}

void verify_step(const char *dir, const char *only, struct verify_tally *n, struct text *faults)
{
    struct ckpt *k;
    if (ckpt_open_manifest(dir, &k) != ERR_OK) {
        FAULT(n, faults, "%s", err_text());
        return;
    }
    char *bytes = malloc(CKPT_CUT_BYTES);
    if (!bytes)
        FATAL("out of memory");
    for (int i = 0; i < k->m.n_files; i++)
        if (!only || strcmp(only, k->m.files[i].name) == 0)
            check_file(k, i, bytes, n, faults);
    if (!only)
        check_strangers(k, n, faults);
    else if (!is_listed(k, only) && strcmp(only, CKPT_MANIFEST) != 0)
        FAULT(n, faults, "%s/%s is no file of this checkpoint", k->dir, only);
    free(bytes);
    ckpt_close(&k);
}

int verify_steps(const char *run_dir, struct arena *a, const char *const **dirs, int *n_dirs)
{
    struct step_entry *steps;
    TRY(steps_list(run_dir, a, &steps, n_dirs));
    const char **d = arena_alloc(a, ((size_t)*n_dirs + 1) * sizeof *d);
    for (int i = 0; i < *n_dirs; i++)
        d[i] = arena_printf(a, "%s/%s", run_dir, steps[i].name);
    *dirs = d;
    return ERR_OK;
}
