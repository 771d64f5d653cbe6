/* stretto verify: is it still what was written? */
#include "cli/cli.h"

#include "ckpt/stats.h"
#include "ckpt/verify.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A checkpoint's folder, or one file of it. */
static void verify_folder(const char *dir, const char *only, int *n_faults, struct text *t)
{
    struct verify_tally n = {0};
    char size[32];
    verify_step(dir, only, &n, t);
    *n_faults += n.n_faults;
    if (n.n_faults == 0)
        text_printf(t, "ok: %s%s%s: %d files, %lld ranges, %s\n", dir, only ? "/" : "",
                    only ? only : "", n.n_files, (long long)n.n_ranges,
                    text_bytes(size, (double)n.n_bytes));
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
    struct stat st;
    *dir = slash ? arena_strndup(a, path, (size_t)(slash - path)) : ".";
    *name = slash ? slash + 1 : path;
    return stat(arena_printf(a, "%s/manifest.json", *dir), &st) == 0;
}

static int verify_one(const char *path, struct arena *a, int *n_faults, struct text *t)
{
    const char *dir = NULL, *name;
    const char *const *dirs;
    int n_dirs = 0;
    struct source *s;
    if (!is_folder(path) && in_checkpoint(path, a, &dir, &name)) {
        verify_folder(dir, name, n_faults, t);
        return ERR_OK;
    }
    struct stat st;
    bool is_step = stat(arena_printf(a, "%s/manifest.json", path), &st) == 0;
    if (is_folder(path) && !is_step)
        TRY(verify_steps(path, a, &dirs, &n_dirs));
    for (int i = 0; i < n_dirs; i++)
        verify_folder(dirs[i], NULL, n_faults, t);
    if (n_dirs > 0)
        return ERR_OK;
    if (is_step) {
        verify_folder(path, NULL, n_faults, t);
        return ERR_OK;
    }
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
