/* The raw bytes of a job file, cut into sections and entries with their lines.  Stricter than
 * iniparser on purpose: what the two would read differently, or a person would misread, is refused
 * here by line. */
#pragma once
#include "base/arena.h"

struct text;

/* Bytes.  A name and a value at their largest, quoted, still fit in a line. */
enum { SCAN_LINE_MAX = 1000, SCAN_VALUE_MAX = 900, SCAN_NAME_MAX = 90, SCAN_FILE_MAX = 256 * 1024 };

struct scan_section {
    const char *name; /* lower case */
    const char *file;
    int line; /* 0: the command line */
};

struct scan_entry {
    const char *section, *key; /* lower case */
    const char *value;         /* without quotes and comment; $VAR not yet replaced */
    const char *file;
    int line;                        /* 0: the command line */
    int level;                       /* which source it comes from; the scan itself says 0 */
    const struct scan_entry *origin; /* what an adopted entry was made from; NULL: it was written */
    const char *heading; /* the section by the other name that it was written under; NULL: none */
};

struct scan {
    int n_sections, n_entries;
    int cap_sections, cap_entries;
    struct scan_section *sections; /* in the arena */
    struct scan_entry *entries;
    struct arena *arena; /* borrowed */
};

/* Cut text.  clean (NULL: not wanted) gets the same lines as iniparser can take them: headers
 * without comments, no CR.  ERR_USAGE begins with "file:line: ".  Local. */
int scan_text(const char *file, const char *text, size_t n_bytes, struct arena *a, struct scan *out,
              struct text *clean);

/* Append one entry or section; strings are borrowed.  Local. */
void scan_add_section(struct scan *s, struct scan_section section);
void scan_add_entry(struct scan *s, struct scan_entry entry);

/* n bytes as a lower-case name in a, or NULL with a reason in *why.  Dots separate parts, none of
 * them empty, made of letters, digits, _ and -.  Local. */
const char *scan_name(const char *s, size_t n_bytes, struct arena *a, const char **why);

/* Whether bytes are UTF-8 (RFC 3629); *at is the first that is not.  Local. */
bool scan_is_utf8(const char *s, size_t n_bytes, size_t *at);

/* Append "key = value" as a file's line that scan_text() reads back to value once $ is expanded.
 * NULL, or the reason why no line can hold it (nothing is appended then).  Local. */
const char *scan_write_entry(struct text *out, const char *key, const char *value);

/* Let iniparser load clean and compare: every entry of s must come back with the same value, and
 * nothing else.  ERR_USAGE names the line; ERR_RESOURCE: no memory file.  Local. */
int scan_compare(const struct scan *s, const char *file, const char *clean, size_t n_bytes);
