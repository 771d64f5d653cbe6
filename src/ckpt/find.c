/* Which step folder is meant. */
#include "ckpt/ckpt_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder that path is in, and what path is called in it. */
static const char *parent_of(const char *path, struct arena *a, const char **base)
{
    const char *slash = strrchr(path, '/');
    *base = slash ? slash + 1 : path;
    if (!slash)
        return ".";
    return slash == path ? "/" : arena_strndup(a, path, (size_t)(slash - path));
}

static int newest_in(const char *run_dir, struct arena *a, const char **dir)
{
    struct step_entry *steps;
    int n_steps;
    TRY(steps_list(run_dir, a, &steps, &n_steps));
    *dir = n_steps ? arena_printf(a, "%s/%s", run_dir, steps[n_steps - 1].name) : NULL;
    return ERR_OK;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The complete step that a link points to, or NULL.  Not the link: it may move to another step
 * while files are opened through it. */
static const char *step_behind(const char *link, const char *run_dir, struct arena *a)
{
    char to[4096];
    ssize_t n = readlink(link, to, sizeof to - 1);
    if (n <= 0)
        return NULL;
    to[n] = 0;
    while (n > 1 && to[n - 1] == '/')
        to[--n] = 0;
    const char *target = to[0] == '/' ? arena_strdup(a, to) : arena_printf(a, "%s/%s", run_dir, to);
    return step_complete(target) ? target : NULL;
}

static int not_there(const char *what, const char *run_dir, int why, struct arena *a)
{
    const char *newest = NULL;
    if (is_dir(run_dir) && newest_in(run_dir, a, &newest) == ERR_OK && newest)
        FAIL(ERR_DATA, "no checkpoint %s: %s; the newest beside it is %s", what, strerror(why),
             newest);
    FAIL(ERR_DATA, "no checkpoint %s: %s", what, strerror(why));
}

int ckpt_find(const char *what, struct arena *a, const char **dir)
{
    size_t n = strlen(what);
    while (n > 1 && what[n - 1] == '/')
        n--;
    const char *path = arena_strndup(a, what, n), *base, *suffix;
    const char *run_dir = parent_of(path, a, &base);
    int64_t step;
    struct stat st;
    *dir = NULL;
    bool is_latest = strcmp(base, "latest") == 0 && is_dir(run_dir);
    bool is_link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    if (is_link)
        *dir = step_behind(path, run_dir, a);
    if (*dir)
        return ERR_OK;
    if (is_latest && is_link) /* a broken one */
        return newest_in(run_dir, a, dir);
    if (stat(path, &st) != 0) {
        int why = errno;
        if (is_latest && newest_in(run_dir, a, dir) == ERR_OK && *dir)
            return ERR_OK;
        return not_there(path, run_dir, why, a);
    }
    if (!S_ISDIR(st.st_mode))
        FAIL(ERR_DATA, "%s is a file; a checkpoint is a folder%s%s", path,
             step_complete(run_dir) ? ": " : "", step_complete(run_dir) ? run_dir : "");
    if (step_complete(path)) {
        *dir = path;
        return ERR_OK;
    }
    if (step_parse(base, &step, &suffix))
        FAIL(ERR_DATA, "%s has no %s: its save was not finished", path, CKPT_MANIFEST);
    return newest_in(path, a, dir);
}
