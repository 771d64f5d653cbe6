/* Files with their includes and the command line's overrides, merged into one list of entries. */
#include "job/job_impl.h"

#include "base/file.h"
#include "base/text.h"
#include "job/expand.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct loader {
    struct job *job;
    const struct section_kind *const *kinds;
    int n_files; /* files being read, outermost first: an include may not be one of them */
    dev_t dev[JOB_INCLUDE_DEPTH_MAX + 1];
    ino_t ino[JOB_INCLUDE_DEPTH_MAX + 1];
};

static void add_section(struct loader *l, struct scan_section section)
{
    if (!job_has_section(l->job, section.name))
        scan_add_section(&l->job->all, section);
}

/* Put the expanded value in place of the raw one. */
static int expand_entry(struct scan_entry *e, struct arena *a)
{
    int rc = expand_value(e->value, a, &e->value);
    if (rc != ERR_OK)
        err_prefix("%s", job_place(e, a));
    return rc;
}

static int load_file(struct loader *l, const char *path, int level);

static int find_include(const struct loader *l, const struct scan_entry *e, const char **out)
{
    if (e->level > JOB_INCLUDE_DEPTH_MAX)
        FAIL(ERR_USAGE, "includes are nested at most %d deep", JOB_INCLUDE_DEPTH_MAX);
    const char *slash = strrchr(e->file, '/'), *path = e->value;
    if (slash && *path != '/')
        path = arena_printf(l->job->arena, "%.*s%s", (int)(slash + 1 - e->file), e->file, path);
    struct stat st;
    if (stat(path, &st) != 0)
        FAIL(ERR_USAGE, "cannot open %s: %s", path, strerror(errno));
    for (int i = 0; i < l->n_files; i++)
        if (l->dev[i] == st.st_dev && l->ino[i] == st.st_ino)
            FAIL(ERR_USAGE, "%s includes itself, in one or more steps", path);
    *out = path;
    return ERR_OK;
}

static int load_include(struct loader *l, struct scan_entry *e)
{
    TRY(expand_entry(e, l->job->arena));
    const char *path = NULL;
    int rc = find_include(l, e, &path);
    if (rc != ERR_OK) {
        err_prefix("%s", job_place(e, l->job->arena));
        return rc;
    }
    return load_file(l, path, e->level + 1);
}

static int load_text(struct loader *l, const char *file, const char *bytes, size_t n_bytes,
                     int level)
{
    struct scan scan;
    struct text clean = {0};
    int rc = scan_text(file, bytes, n_bytes, l->job->arena, &scan, &clean);
    if (rc == ERR_OK)
        rc = scan_compare(&scan, file, clean.s, clean.n_bytes);
    text_clear(&clean);
    TRY(rc);
    for (int i = 0; i < scan.n_sections; i++)
        add_section(l, scan.sections[i]);
    struct scan_entry *include = NULL;
    for (int i = 0; i < scan.n_entries; i++) {
        struct scan_entry *e = &scan.entries[i];
        e->level = level;
        if (strcmp(e->section, "job") == 0 && strcmp(e->key, "include") == 0)
            include = e;
        else
            scan_add_entry(&l->job->all, *e);
    }
    return include ? load_include(l, include) : ERR_OK;
}

static int load_file(struct loader *l, const char *path, int level)
{
    struct stat st;
    if (stat(path, &st) != 0)
        FAIL(ERR_USAGE, "cannot open job file %s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        FAIL(ERR_USAGE, "%s is a folder, not a job file", path);
    if (!S_ISREG(st.st_mode)) /* opening a pipe would wait for its writer */
        FAIL(ERR_USAGE, "%s is not a regular file", path);
    char *bytes;
    size_t n_bytes;
    TRY(file_read(path, JOB_FILE_BYTES_MAX, ERR_USAGE, &bytes, &n_bytes));
    l->dev[l->n_files] = st.st_dev;
    l->ino[l->n_files] = st.st_ino;
    l->n_files++;
    int rc = load_text(l, arena_strdup(l->job->arena, path), bytes, n_bytes, level);
    l->n_files--;
    free(bytes);
    return rc;
}

static void take_longer(const char **best, const char *name, const char *text)
{
    size_t n = strlen(name);
    if ((!*best || n > strlen(*best)) && strncmp(text, name, n) == 0 && text[n] == '.' &&
        text[n + 1])
        *best = name;
}

/* The longest of the known section names that text begins with, followed by a dot. */
static const char *section_that_fits(const struct loader *l, const char *text)
{
    const struct scan *all = &l->job->all;
    const char *best = NULL;
    for (int i = 0; i < all->n_sections; i++)
        take_longer(&best, all->sections[i].name, text);
    for (int i = 0; l->kinds[i]; i++) {
        const struct section_alias *s = l->kinds[i]->aliases;
        take_longer(&best, l->kinds[i]->name, text);
        for (; s && s->name; s++)
            take_longer(&best, s->name, text);
    }
    return best;
}

/* What is wrong with an override's left side that names no section. */
static int override_without_section(const struct loader *l, const char *name)
{
    const char *dot = strchr(name, '.');
    for (int i = 0; l->kinds[i]; i++) {
        const struct section_kind *k = l->kinds[i];
        bool known = opt_find(k->opts, name) != NULL;
        for (const struct section_variant *v = k->variants; !known && v && v->word; v++)
            known = opt_find(v->opts, name) != NULL;
        if (known)
            FAIL(ERR_USAGE, "an override is section.key=value; did you mean %s.%s?", k->name, name);
    }
    if (!dot)
        FAIL(ERR_USAGE, "an override is section.key=value");
    struct arena *a = l->job->arena;
    return job_unknown_section(arena_strndup(a, name, (size_t)(dot - name)), l->kinds, a);
}

static int load_override(struct loader *l, const char *override)
{
    struct arena *a = l->job->arena;
    const char *equals = strchr(override, '=');
    if (!equals)
        FAIL(ERR_USAGE, "an override is section.key=value");
    const char *why = NULL;
    const char *name = scan_name(override, (size_t)(equals - override), a, &why);
    if (!name || !*name)
        FAIL(ERR_USAGE, "%s", why ? why : "an override is section.key=value");
    const char *section = section_that_fits(l, name);
    if (!section)
        return override_without_section(l, name);
    const char *key = name + strlen(section) + 1;
    if (strcmp(section, "job") == 0 && strcmp(key, "include") == 0)
        FAIL(ERR_USAGE, "include stands in a file; on the command line name the file itself");
    struct text line = {0};
    why = scan_write_entry(&line, key, equals + 1);
    text_clear(&line);
    if (why)
        FAIL(ERR_USAGE, "%s", why);
    add_section(l, (struct scan_section){section, "command line", 0});
    scan_add_entry(&l->job->all, (struct scan_entry){.section = section,
                                                     .key = key,
                                                     .value = arena_strdup(a, equals + 1),
                                                     .file = "command line",
                                                     .level = LEVEL_COMMAND_LINE});
    return ERR_OK;
}

/* Drop what a stronger entry of the same name hides.  It is never expanded, so the variables in it
 * need not exist. */
static void drop_hidden(struct scan *all)
{
    int n_kept = 0;
    bool *hidden = arena_alloc(all->arena, (size_t)all->n_entries + 1);
    for (int i = 0; i < all->n_entries; i++)
        for (int k = 0; k < all->n_entries && !hidden[i]; k++) {
            const struct scan_entry *e = &all->entries[i], *o = &all->entries[k];
            bool stronger = o->level < e->level || (o->level == e->level && k > i);
            hidden[i] =
                stronger && strcmp(o->key, e->key) == 0 && strcmp(o->section, e->section) == 0;
        }
    for (int i = 0; i < all->n_entries; i++)
        if (!hidden[i])
            all->entries[n_kept++] = all->entries[i];
    all->n_entries = n_kept;
}

/* All that follows the reading of files. */
static int finish(struct loader *l, int n_overrides, const char *const *overrides)
{
    struct job *j = l->job;
    for (int i = 0; i < n_overrides; i++)
        if (load_override(l, overrides[i]) != ERR_OK) {
            /* not err_prefix(): an override may hold line breaks, which err_set() flattens */
            const char *why = arena_strdup(j->arena, err_text());
            FAIL(ERR_USAGE, "command line: %s: %s", overrides[i], why);
        }
    TRY(job_merge_aliases(j, l->kinds));
    drop_hidden(&j->all);
    for (int i = 0; i < j->all.n_entries; i++)
        TRY(expand_entry(&j->all.entries[i], j->arena));
    job_start_log(j);
    return ERR_OK;
}

static struct job *job_create(const char *file, struct arena *a)
{
    struct job *j = arena_alloc(a, sizeof *j);
    j->file = arena_strdup(a, file);
    j->arena = a;
    j->all.arena = a;
    return j;
}

int job_load(const char *path, int n_overrides, const char *const *overrides,
             const struct section_kind *const *kinds, struct arena *a, struct job **out)
{
    if (strcmp(path, "-") == 0)
        FAIL(ERR_USAGE, "a job file is read by name, - (standard input) is not taken");
    struct loader l = {.job = job_create(path, a), .kinds = kinds};
    TRY(load_file(&l, path, LEVEL_FILE));
    TRY(finish(&l, n_overrides, overrides));
    *out = l.job;
    return ERR_OK;
}

int job_parse(const char *name, const char *text, size_t n_bytes, int n_overrides,
              const char *const *overrides, const struct section_kind *const *kinds,
              struct arena *a, struct job **out)
{
    struct loader l = {.job = job_create(name, a), .kinds = kinds};
    TRY(load_text(&l, l.job->file, text, n_bytes, LEVEL_FILE));
    TRY(finish(&l, n_overrides, overrides));
    *out = l.job;
    return ERR_OK;
}
