/* The second reader: iniparser (4.1 or 4.2) loads the same lines and must find the same entries.
 * Both loads by file name only, so the lines go through a memory file. */
#include "job/scan.h"

#include "base/file.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if __has_include(<iniparser/iniparser.h>)
#include <iniparser/iniparser.h>
#else
#include <iniparser.h>
#endif

/* iniparser prints to stderr by default; what it dislikes is reported by its answer instead. */
static int be_silent(const char *fmt, ...)
{
    (void)fmt;
    return 0;
}

static int load_fd(int fd, const char *clean, size_t n_bytes, dictionary **out)
{
    TRY(file_write_fd(fd, "the job's memory file", clean, n_bytes));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (access(path, R_OK) != 0)
        FAIL(ERR_RESOURCE, "cannot open %s: %s (is /proc mounted?)", path, strerror(errno));
    iniparser_set_error_callback(be_silent);
    *out = iniparser_load(path);
    if (!*out)
        FAIL(ERR_USAGE, "iniparser cannot read it");
    return ERR_OK;
}

static int compare_entry(const dictionary *d, const struct scan_entry *e)
{
    char name[2 * SCAN_LINE_MAX + 2];
    snprintf(name, sizeof name, "%s:%s", e->section, e->key);
    const char *theirs = iniparser_getstring(d, name, NULL);
    if (theirs && strcmp(theirs, e->value) == 0)
        return ERR_OK;
    FAIL(ERR_USAGE, "%s:%d: [%s] %s = %s: iniparser reads %s%s%s here; quote the value", e->file,
         e->line, e->section, e->key, e->value, theirs ? "\"" : "", theirs ? theirs : "nothing",
         theirs ? "\"" : "");
}

static int compare_all(const struct scan *s, const char *file, const dictionary *d)
{
    for (int i = 0; i < s->n_entries; i++)
        TRY(compare_entry(d, &s->entries[i]));
    int n_sections = iniparser_getnsec(d), n_entries = 0;
    for (int i = 0; i < n_sections; i++)
        n_entries += iniparser_getsecnkeys(d, iniparser_getsecname(d, i));
    if (n_sections != s->n_sections || n_entries != s->n_entries)
        FAIL(ERR_USAGE, "%s: iniparser finds %d sections with %d keys, not %d with %d", file,
             n_sections, n_entries, s->n_sections, s->n_entries);
    return ERR_OK;
}

int scan_compare(const struct scan *s, const char *file, const char *clean, size_t n_bytes)
{
    int fd = memfd_create("job", MFD_CLOEXEC);
    if (fd < 0)
        FAIL(ERR_RESOURCE, "%s: cannot make a memory file: %s", file, strerror(errno));
    dictionary *d = NULL;
    int rc = load_fd(fd, clean, n_bytes, &d);
    close(fd);
    if (rc != ERR_OK) {
        err_prefix("%s", file);
        return rc;
    }
    rc = compare_all(s, file, d);
    iniparser_freedict(d);
    return rc;
}
