/* What a job is made of; private to this folder. */
#pragma once
#include "job/job.h"
#include "job/scan.h"

enum { JOB_FILE_BYTES_MAX = SCAN_FILE_MAX, JOB_INCLUDE_DEPTH_MAX = 8 };

/* Where an entry comes from; the smaller level wins.  An included file is one more than its
 * includer. */
enum { LEVEL_COMMAND_LINE = 0, LEVEL_FILE = 1 };

/* One key that job_read() filled. */
struct job_seen {
    const char *heading;     /* the section that the resolved job shows it in */
    const char *kind, *name; /* as asked for; name may be NULL */
    const char *key;
    const char *value;              /* canonical; NULL: a text without a value */
    const struct scan_entry *entry; /* NULL: the default */
    struct job_seen *next;
};

struct job {
    const char *file;
    struct scan all; /* of all files and the command line, values expanded */
    struct arena *arena;
    struct job_log *log; /* grows while a const job is read */
};

/* An entry that another section's key stands for. */
struct job_adopted {
    struct scan_entry entry;
    struct job_adopted *next;
};

struct job_log {
    struct job_seen *first, *last;
    bool *section_seen; /* as all.sections */
    struct job_adopted *adopted;
};

/* Begin the log of a job whose sections are complete.  Local. */
void job_start_log(struct job *j);

/* The entry that sets o in section, by any spelling: the strongest level, of the command line's the
 * last.  NULL: none.  Local. */
const struct scan_entry *job_find(const struct job *j, const char *section, const struct opt *o);

/* "KIND.NAME", or KIND where name is NULL, in the job's arena.  Local. */
const char *job_section_name(const struct job *j, const char *kind, const char *name);

/* "FILE:LINE: [section] key = value", a long value cut, in a.  Local. */
const char *job_place(const struct scan_entry *e, struct arena *a);

/* Move what stands under a kind's other names to its plain section, with the type that the name
 * says.  ERR_USAGE: two names of one section.  Local. */
int job_merge_aliases(struct job *j, const struct section_kind *const *kinds);

/* The kind of a full section name, with the part behind the dot (NULL: none).  NULL: no such kind.
 * Local. */
const struct section_kind *job_kind_of(const char *section, const struct section_kind *const *kinds,
                                       const char **name);

/* Error texts for names that nobody knows.  Local; they return ERR_USAGE. */
int job_unknown_section(const char *section, const struct section_kind *const *kinds,
                        struct arena *a);
