/* Keys that stand for keys of another section: entries that a job gets beside those it was loaded
 * with.  They win and lose by the same levels as what is written. */
#include "job/job_impl.h"

#include "base/text.h"
#include <limits.h>
#include <string.h>

/* What stands in [section] under exactly this key; the strongest. */
static const struct scan_entry *find_written(const struct job *j, const char *section,
                                             const char *key)
{
    const struct opt row = {.name = key, .type = OPT_STR};
    return job_find(j, section, &row);
}

static const struct scan_entry *find_target(const struct job *j, const char *kind, const char *name,
                                            const struct opt *row)
{
    const struct scan_entry *e = job_find(j, job_section_name(j, kind, name), row);
    return e || !name ? e : job_find(j, kind, row);
}

/* Value as the row prints it, so that 1 and 1.0 are the same.  e: where it stands. */
static int canonical(const struct job *j, const struct scan_entry *e, const char *text,
                     const struct opt *row, const char **out)
{
    union { /* as large and as aligned as any field */
        struct opt_f64s numbers;
        struct opt_strs strings;
    } value;
    struct opt at_zero = *row;
    at_zero.offset = 0;
    int rc = opt_parse(&at_zero, text, &value, j->arena);
    if (rc != ERR_OK)
        err_prefix("%s", job_place(e, j->arena));
    else
        *out = opt_print(&at_zero, &value, j->arena);
    return rc;
}

static void add(const struct job *j, const char *section, const struct opt *row, const char *value,
                int level, const struct scan_entry *origin)
{
    struct job_adopted *x = arena_alloc(j->arena, sizeof *x);
    *x = (struct job_adopted){.entry = {.section = section,
                                        .key = row->name,
                                        .value = value,
                                        .file = j->file,
                                        .level = level,
                                        .origin = origin},
                              .next = j->log->adopted};
    j->log->adopted = x;
}

int job_adopt(const struct job *j, const char *from_section, const char *from_key, const char *kind,
              const char *name, const struct opt *row)
{
    const struct scan_entry *from = find_written(j, from_section, from_key);
    if (!from || text_same(from->value, "auto"))
        return ERR_OK;
    return job_adopt_as(j, from_section, from_key, from->value, kind, name, row);
}

int job_adopt_as(const struct job *j, const char *from_section, const char *from_key,
                 const char *value, const char *kind, const char *name, const struct opt *row)
{
    const struct scan_entry *from = find_written(j, from_section, from_key);
    REQUIRE(from);
    const struct scan_entry *to = find_target(j, kind, name, row);
    const char *said = NULL, *says = NULL;
    TRY(canonical(j, from, value, row, &says));
    if (to && to->level < from->level)
        return ERR_OK;
    if (to && to->level == from->level) {
        TRY(canonical(j, to, to->value, row, &said));
        if (!text_same(said, says)) {
            err_set(ERR_USAGE, "%s says another thing: one of the two is enough",
                    job_place(to, j->arena));
            err_prefix("%s", job_place(from, j->arena));
            return ERR_USAGE;
        }
    }
    add(j, job_section_name(j, kind, name), row, value, from->level, from);
    return ERR_OK;
}

void job_adopt_default(const struct job *j, const char *kind, const char *name,
                       const struct opt *row, const char *value)
{
    if (!find_target(j, kind, name, row))
        add(j, job_section_name(j, kind, name), row, value, INT_MAX, NULL);
}

void job_adopt_reset(const struct job *j)
{
    j->log->adopted = NULL;
}
