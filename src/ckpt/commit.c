/* From step-N.tmp to step-N.  At every moment a crash leaves the newest complete checkpoint where
 * ckpt_find() finds it: what is replaced steps aside first (.old), what is deleted is renamed to
 * .tmp first, and nothing is deleted before its successor is on the disk. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int rename_to(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        FAIL(ERR_RESOURCE, "cannot rename %s to %s: %s", from, to, strerror(errno));
    return ERR_OK;
}

static int check_space(const char *dir, int64_t n_bytes, int64_t file_bytes)
{
    char need[32], have[32];
    struct statvfs fs;
    struct rlimit limit;
    if (statvfs(dir, &fs) != 0)
        FAIL(ERR_RESOURCE, "cannot ask for the free space of %s: %s", dir, strerror(errno));
    double free_bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    if (free_bytes < (double)n_bytes)
        FAIL(ERR_RESOURCE,
             "a checkpoint needs %s (%lld bytes), the disk of %s has %s (%.0f bytes) free",
             text_bytes(need, (double)n_bytes), (long long)n_bytes, dir,
             text_bytes(have, free_bytes), free_bytes);
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (double)limit.rlim_cur < (double)file_bytes)
        FAIL(ERR_RESOURCE,
             "a checkpoint needs a file of %s (%lld bytes), `ulimit -f` allows %s (%.0f bytes)",
             text_bytes(need, (double)file_bytes), (long long)file_bytes,
             text_bytes(have, (double)limit.rlim_cur), (double)limit.rlim_cur);
    return ERR_OK;
}

int commit_begin(struct commit *k, struct arena *a, const char *run_dir, int64_t step,
                 int64_t n_bytes, int64_t file_bytes)
{
    size_t n = strlen(run_dir);
    while (n > 1 && run_dir[n - 1] == '/')
        n--;
    k->run_dir = arena_strndup(a, run_dir, n);
    k->step_name = arena_printf(a, "step-%08lld", (long long)step);
    k->step_dir = arena_printf(a, "%s/%s", k->run_dir, k->step_name);
    k->tmp_dir = arena_printf(a, "%s.tmp", k->step_dir);
    k->old_dir = arena_printf(a, "%s.old", k->step_dir);
    TRY(file_make_dirs(k->run_dir));
    TRY(steps_tidy(k->run_dir));
    TRY(check_space(k->run_dir, n_bytes, file_bytes));
    if (mkdir(k->tmp_dir, 0777) != 0)
        FAIL(ERR_RESOURCE, "cannot make folder %s: %s", k->tmp_dir, strerror(errno));
    k->made = true;
    return ERR_OK;
}

void commit_undo(struct commit *k)
{
    char text[ERR_TEXT_BYTES];
    if (!k->made)
        return;
    k->made = false;
    snprintf(text, sizeof text, "%s", err_text());
    if (file_remove_tree(k->tmp_dir) != ERR_OK)
        err_prefix("%s; and then", text);
    else
        err_set(ERR_RESOURCE, "%s", text);
}

/* Nothing between the two renames but the old one's name: see steps.c. */
static int take_name(struct commit *k)
{
    struct stat st;
    bool replaces = lstat(k->step_dir, &st) == 0;
    if (replaces && !step_complete(k->step_dir)) {
        TRY(file_remove_tree(k->step_dir));
        replaces = false;
    }
    if (replaces)
        TRY(rename_to(k->step_dir, k->old_dir));
    if (rename(k->tmp_dir, k->step_dir) != 0) {
        int why = errno;
        if (replaces)
            TRY(rename_to(k->old_dir, k->step_dir));
        FAIL(ERR_RESOURCE, "cannot rename %s to %s: %s", k->tmp_dir, k->step_dir, strerror(why));
    }
    k->made = false;
    TRY(file_sync_dir(k->run_dir));
    return ERR_OK;
}

static int move_link(const struct commit *k, const char *name)
{
    struct text link = {0}, tmp = {0};
    text_printf(&link, "%s/%s", k->run_dir, name);
    text_printf(&tmp, "%s/%s.tmp", k->run_dir, name);
    int rc = file_remove_tree(tmp.s);
    if (rc == ERR_OK && symlink(k->step_name, tmp.s) != 0)
        rc = err_set(ERR_RESOURCE, "cannot make the link %s: %s", tmp.s, strerror(errno));
    if (rc == ERR_OK)
        rc = rename_to(tmp.s, link.s);
    text_clear(&link);
    text_clear(&tmp);
    return rc == ERR_OK ? file_sync_dir(k->run_dir) : rc;
}

/* The name goes at once and durably; a crash while the files go leaves a .tmp. */
static int drop_step(const struct commit *k, struct arena *a, const char *name)
{
    const char *dir = arena_printf(a, "%s/%s", k->run_dir, name);
    const char *gone = arena_printf(a, "%s.tmp", dir);
    TRY(rename_to(dir, gone));
    TRY(file_sync_dir(k->run_dir));
    return file_remove_tree(gone);
}

/* A step that does not say whose it is is nobody's: it is neither counted nor deleted.  No more is
 * read of it, since manifests of large models take longer to read than a small save does. */
static bool is_of_run(const struct commit *k, struct arena *a, const char *name, const char *run_id)
{
    const char *of, *path = arena_printf(a, "%s/%s/%s", k->run_dir, name, CKPT_MANIFEST);
    return manifest_read_run(path, a, &of) == ERR_OK && strcmp(of, run_id) == 0;
}

/* What the link `best` names, or "". */
static const char *best_of(const struct commit *k, struct arena *a)
{
    char to[256];
    ssize_t n = readlink(arena_printf(a, "%s/best", k->run_dir), to, sizeof to - 1);
    return n > 0 ? arena_strndup(a, to, (size_t)n) : "";
}

static int drop_beyond(const struct commit *k, struct arena *a, const struct ckpt_save *s)
{
    struct step_entry *steps;
    int n_steps, n_own = 0;
    const char *best = best_of(k, a);
    TRY(steps_list(k->run_dir, a, &steps, &n_steps));
    for (int i = 0; i < n_steps; i++)
        if (is_of_run(k, a, steps[i].name, s->run_id))
            steps[n_own++] = steps[i];
    /* never the newest, and never this one, though a run that went back has newer ones */
    for (int i = 0; i < n_own - s->keep; i++) {
        bool stays = strcmp(steps[i].name, k->step_name) == 0 || strcmp(steps[i].name, best) == 0 ||
                     (s->keep_every > 0 && steps[i].step % s->keep_every == 0);
        if (!stays)
            TRY(drop_step(k, a, steps[i].name));
    }
    return ERR_OK;
}

static int drop_old(struct commit *k, int rank, const struct ckpt_save *s)
{
    struct arena *a = arena_create();
    struct stat st;
    int rc = err_fault(rank, "ckpt.keep");
    if (rc == ERR_OK && lstat(k->old_dir, &st) == 0)
        rc = file_remove_tree(k->old_dir);
    if (rc == ERR_OK && s->keep > 0)
        rc = drop_beyond(k, a, s);
    arena_destroy(&a);
    return rc;
}

int commit_end(struct commit *k, int rank, const struct ckpt_save *s)
{
    TRY(file_sync_dir(k->tmp_dir));
    TRY(err_fault(rank, "ckpt.commit"));
    TRY(take_name(k));
    int rc = err_fault(rank, "ckpt.latest");
    if (rc == ERR_OK)
        rc = move_link(k, "latest");
    if (rc == ERR_OK && s->is_best)
        rc = move_link(k, "best");
    if (rc == ERR_OK)
        rc = drop_old(k, rank, s);
    if (rc != ERR_OK)
        err_prefix("%s is saved, but not all that follows it is done", k->step_dir);
    return rc;
}
