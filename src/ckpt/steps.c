/* The folders of a run: step-N, complete once it holds a manifest; step-N.tmp, worth nothing;
 * step-N.old, a complete one that was about to be replaced. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct name_list {
    const char **name;
    int n, cap;
};

bool step_parse(const char *name, int64_t *step, const char **suffix)
{
    enum { MOST_DIGITS = 18 };
    if (strncmp(name, "step-", 5) != 0)
        return false;
    const char *p = name + 5;
    *step = 0;
    while (isdigit((unsigned char)*p) && p - name - 5 < MOST_DIGITS)
        *step = *step * 10 + (*p++ - '0');
    *suffix = p;
    return p > name + 5 && (!*p || strcmp(p, ".tmp") == 0 || strcmp(p, ".old") == 0);
}

bool step_complete(const char *dir)
{
    struct stat st;
    struct text path = {0};
    text_printf(&path, "%s/%s", dir, CKPT_MANIFEST);
    bool there = stat(path.s, &st) == 0;
    text_clear(&path);
    return there;
}

static void name_add(struct name_list *l, struct arena *a, const char *name)
{
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 32;
        const char **more = arena_alloc(a, (size_t)cap * sizeof *more);
        if (l->n)
            memcpy(more, l->name, (size_t)l->n * sizeof *more);
        l->name = more;
        l->cap = cap;
    }
    l->name[l->n++] = arena_strdup(a, name);
}

/* All names of steps, whatever their suffix.  Collected first: the caller renames and removes. */
static int names_read(const char *run_dir, struct arena *a, struct name_list *l)
{
    DIR *d = opendir(run_dir);
    if (!d)
        FAIL(ERR_DATA, "cannot open folder %s: %s", run_dir, strerror(errno));
    int64_t step;
    const char *suffix;
    for (struct dirent *e; (e = readdir(d));)
        if (step_parse(e->d_name, &step, &suffix))
            name_add(l, a, e->d_name);
    closedir(d);
    return ERR_OK;
}

static int by_step(const void *a, const void *b)
{
    const struct step_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int list_once(const char *run_dir, struct arena *a, struct step_entry **steps, int *n_steps)
{
    struct name_list l = {0};
    TRY(names_read(run_dir, a, &l));
    struct step_entry *s = arena_alloc(a, ((size_t)l.n + 1) * sizeof *s);
    int n = 0;
    for (int i = 0; i < l.n; i++) {
        int64_t step;
        const char *suffix, *dir = arena_printf(a, "%s/%s", run_dir, l.name[i]);
        if (!step_parse(l.name[i], &step, &suffix) || strcmp(suffix, ".tmp") == 0 ||
            !step_complete(dir))
            continue;
        const char *whole = arena_strndup(a, dir, strlen(dir) - strlen(suffix));
        if (!*suffix || !step_complete(whole))
            s[n++] = (struct step_entry){step, l.name[i]};
    }
    qsort(s, (size_t)n, sizeof *s, by_step);
    *steps = s;
    *n_steps = n;
    return ERR_OK;
}

/* A run with keep = 1 may delete what was listed before it is looked at, and the step after it came
 * too late for the list.  Where `latest` is, one has been complete, so the list is made anew. */
int steps_list(const char *run_dir, struct arena *a, struct step_entry **steps, int *n_steps)
{
    enum { TRIES = 100 }; /* each of them is a whole save of somebody else's */
    const char *latest = arena_printf(a, "%s/latest", run_dir);
    struct stat st;
    TRY(list_once(run_dir, a, steps, n_steps));
    for (int i = 1; i < TRIES && *n_steps == 0 && lstat(latest, &st) == 0; i++)
        TRY(list_once(run_dir, a, steps, n_steps));
    return ERR_OK;
}

static int tidy_one(const char *run_dir, const char *name, struct arena *a)
{
    int64_t step;
    const char *suffix = "", *dir = arena_printf(a, "%s/%s", run_dir, name);
    if (!step_parse(name, &step, &suffix) || !*suffix)
        return ERR_OK;
    const char *whole = arena_strndup(a, dir, strlen(dir) - strlen(suffix));
    if (strcmp(suffix, ".tmp") == 0 || step_complete(whole) || !step_complete(dir))
        return file_remove_tree(dir);
    TRY(file_remove_tree(whole));
    if (rename(dir, whole) != 0)
        FAIL(ERR_RESOURCE, "cannot rename %s back to %s: %s", dir, whole, strerror(errno));
    return ERR_OK;
}

int steps_tidy(const char *run_dir)
{
    struct arena *a = arena_create();
    struct name_list l = {0};
    int rc = names_read(run_dir, a, &l);
    for (int i = 0; i < l.n && rc == ERR_OK; i++)
        rc = tidy_one(run_dir, l.name[i], a);
    arena_destroy(&a);
    return rc;
}
