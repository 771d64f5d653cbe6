/* stretto verify: is it still what was written? */
#include "cli/cli.h"

#include "ckpt/stats.h"
#include "ckpt/verify.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool is_step(const char *dir)
{
    char path[4096];
    struct stat st;
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    return stat(path, &st) == 0;
}

/* A checkpoint's folder, or one file of it.  False if it was deleted meanwhile (keep): then nothing
 * is said of it. */
static bool verify_folder(const char *dir, const char *only, int *n_faults, struct text *t)
{
    struct verify_tally n = {0};
    char size[32];
    struct text faults = {0};
    bool was_there = is_step(dir);
    verify_step(dir, only, &n, &faults);
    bool gone = n.n_faults > 0 && was_there && !is_step(dir);
    if (!gone && faults.s)
        text_add(t, faults.s, faults.n_bytes);
    text_clear(&faults);
    if (gone)
        return false;
    *n_faults += n.n_faults;
    if (n.n_faults == 0)
        text_printf(t, "ok: %s%s%s: %d files, %lld ranges, %s\n", dir, only ? "/" : "",
                    only ? only : "", n.n_files, (long long)n.n_ranges,
                    text_bytes(size, (double)n.n_bytes));
    return true;
}

/* The steps that a folder or a link stands for, while a run may save and delete there. */
static int verify_found(const char *path, struct arena *a, int *n_faults, struct text *t, int *n)
{
    enum { TRIES = 100 }; /* each of them is a whole save of somebody else's */
    *n = 0;
    for (int i = 0; i < TRIES && *n == 0; i++) {
        const char *const *dirs = NULL, *dir = NULL;
        int n_dirs = 0;
        if (!is_step(path))
            TRY(verify_steps(path, a, &dirs, &n_dirs));
        else
            TRY(ckpt_find(path, a, &dir));
        if (dir)
            *n += verify_folder(dir, NULL, n_faults, t);
        for (int k = 0; k < n_dirs; k++)
            *n += verify_folder(dirs[k], NULL, n_faults, t);
        if (!dir && n_dirs == 0)
            return ERR_OK;
    }
    return ERR_OK;
}

/* Formats without checksums: what can be said of them. */
static int verify_source(const struct source *s, struct arena *a, int *n_faults, struct text *t)
{
    struct weights w;
    struct tensor_stats st;
    int64_t n_nan = 0;
    weights_all(s, a, &w);
    for (int i = 0; i < w.n; i++) {
        if (w.rows[i].x.dtype == DTYPE_COUNT)
            continue;
        if (stats_read(&w, i, &st) != ERR_OK) {
            text_printf(t, "bad: %s\n", err_text());
            ++*n_faults;
        }
        n_nan += st.n_nan;
    }
    text_printf(t,
                "%s: %s: %d tensors, %lld NaN; header, sizes and places are right (%s has no "
                "checksums: what was flipped in the values is not seen)\n",
                *n_faults ? "bad" : "ok", s->path, w.n, (long long)n_nan, s->ops->name);
    return ERR_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A file of a complete checkpoint: *dir is its folder. */
static bool in_checkpoint(const char *path, struct arena *a, const char **dir, const char **name)
{
    const char *slash = strrchr(path, '/');
    *dir = slash ? arena_strndup(a, path, (size_t)(slash - path)) : ".";
    *name = slash ? slash + 1 : path;
    return is_step(*dir);
}

static int verify_one(const char *path, struct arena *a, int *n_faults, struct text *t)
{
    const char *dir = NULL, *name;
    int n = 0;
    struct source *s;
    if (!is_folder(path) && in_checkpoint(path, a, &dir, &name)) {
        if (!verify_folder(dir, name, n_faults, t))
            FAIL(ERR_DATA, "%s was deleted meanwhile", path);
        return ERR_OK;
    }
    if (is_folder(path))
        TRY(verify_found(path, a, n_faults, t, &n));
    if (n > 0)
        return ERR_OK;
    TRY(source_open(path, &s));
    int rc = verify_source(s, a, n_faults, t);
    source_close(&s);
    return rc;
}

static int verify(struct cli *c, int argc, char **argv)
{
    struct text t = {0};
    int n_faults = 0, rc = ERR_OK;
    if (argc < 2)
        FAIL(ERR_USAGE, "nothing to verify: say stretto verify FOLDER|FILE");
    TRY(cli_alone(c, argv[0]));
    for (int i = 1; i < argc && rc == ERR_OK; i++) {
        rc = verify_one(argv[i], c->arena, &n_faults, &t);
        if (t.s)
            fputs(t.s, stdout);
        text_clear(&t);
    }
    TRY(rc);
    if (n_faults > 0)
        FAIL(ERR_DATA, "%d fault%s found, named above", n_faults, n_faults == 1 ? "" : "s");
    return ERR_OK;
}

const struct command verify_command = {
    .name = "verify",
    .args = "FOLDER|FILE …",
    .summary = "check every checksum of a checkpoint; names each file and range that is not right",
    .help = "FOLDER is a run's output_dir (all its checkpoints), or one of its step folders; FILE\n"
            "one file of a checkpoint, a .safetensors, or a .bin of llama2.c or llm.c.  Status 3\n"
            "if anything is wrong.  Needs no mpirun.\n",
    .run = verify,
};
