/* A loaded job: finding entries, filling structs from them, and remembering what was read. */
#include "job/job_impl.h"

#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void job_start_log(struct job *j)
{
    j->log = arena_alloc(j->arena, sizeof *j->log);
    j->log->section_seen = arena_alloc(j->arena, (size_t)j->all.n_sections + 1);
}

const char *job_file(const struct job *j)
{
    return j->file;
}

const char *job_section_name(const struct job *j, const char *kind, const char *name)
{
    return name ? arena_printf(j->arena, "%s.%s", kind, name) : kind;
}

static int section_index(const struct job *j, const char *section)
{
    for (int i = 0; i < j->all.n_sections; i++)
        if (text_same(j->all.sections[i].name, section))
            return i;
    return -1;
}

bool job_has_section(const struct job *j, const char *section)
{
    return section_index(j, section) >= 0;
}

static const struct scan_entry *find_key(const struct job *j, const char *section, const char *key)
{
    for (int i = 0; i < j->all.n_entries; i++) {
        const struct scan_entry *e = &j->all.entries[i];
        if (text_same(e->section, section) && text_same(e->key, key))
            return e;
    }
    return NULL;
}

const char *job_value(const struct job *j, const char *section, const char *key)
{
    const struct scan_entry *e = find_key(j, section, key);
    return e ? e->value : NULL;
}

const struct scan_entry *job_find(const struct job *j, const char *section, const struct opt *o)
{
    const struct opt table[] = {*o, {.type = OPT_END}};
    const struct scan_entry *best = NULL;
    for (int i = 0; i < j->all.n_entries; i++) {
        const struct scan_entry *e = &j->all.entries[i];
        if (!text_same(e->section, section) || !opt_find(table, e->key))
            continue;
        bool later = best && e->level == best->level && e->level == LEVEL_COMMAND_LINE;
        if (!best || e->level < best->level || later)
            best = e;
    }
    for (const struct job_adopted *x = j->log->adopted; x; x = x->next) {
        const struct scan_entry *e = &x->entry;
        if (text_same(e->section, section) && opt_find(table, e->key) &&
            (!best || e->level <= best->level))
            best = e;
    }
    return best;
}

const char *const *job_names(const struct job *j, const char *kind, int *n)
{
    const char **names = arena_alloc(j->arena, sizeof *names * ((size_t)j->all.n_sections + 1));
    size_t n_kind = strlen(kind);
    *n = 0;
    for (int i = 0; i < j->all.n_sections; i++) {
        const char *s = j->all.sections[i].name;
        if (strncmp(s, kind, n_kind) == 0 && s[n_kind] == '.')
            names[(*n)++] = s + n_kind + 1;
    }
    return names;
}

const char *const *job_unread(const struct job *j, int *n)
{
    const char **names = arena_alloc(j->arena, sizeof *names * ((size_t)j->all.n_sections + 1));
    *n = 0;
    for (int i = 0; i < j->all.n_sections; i++)
        if (!j->log->section_seen[i])
            names[(*n)++] = j->all.sections[i].name;
    return names;
}

const char *job_place(const struct scan_entry *e, struct arena *a)
{
    enum { SHOWN_BYTES = 200 };
    if (e->origin)
        e = e->origin;
    size_t n = strlen(e->value);
    bool cut = n > SHOWN_BYTES;
    for (n = cut ? SHOWN_BYTES : n; cut && ((unsigned char)e->value[n] & 0xC0) == 0x80;)
        n--;
    const char *line = e->line > 0 ? arena_printf(a, ":%d", e->line) : "";
    return arena_printf(a, "%s%s: [%s] %s = %.*s%s", e->file, line,
                        e->heading ? e->heading : e->section, e->key, (int)n, e->value,
                        cut ? "..." : "");
}

/* Remember one key; one that was seen before keeps its place and takes the newer value. */
static void log_key(const struct job *j, const struct job_seen *seen)
{
    for (struct job_seen *s = j->log->first; s; s = s->next)
        if (text_same(s->heading, seen->heading) && strcmp(s->key, seen->key) == 0) {
            s->value = seen->value;
            s->entry = seen->entry;
            return;
        }
    struct job_seen *row = arena_alloc(j->arena, sizeof *row);
    *row = *seen;
    if (j->log->last)
        j->log->last->next = row;
    else
        j->log->first = row;
    j->log->last = row;
}

int job_read(const struct job *j, const char *kind, const char *name, const struct opt *opts,
             void *conf)
{
    const char *own = job_section_name(j, kind, name);
    int at_kind = section_index(j, kind), at_own = section_index(j, own);
    if (at_kind >= 0)
        j->log->section_seen[at_kind] = true;
    if (at_own >= 0)
        j->log->section_seen[at_own] = true;
    const char *heading = at_own >= 0 ? own : kind;
    TRY(opt_defaults(opts, conf, j->arena));
    for (const struct opt *o = opts; o->type != OPT_END; o++) {
        const struct scan_entry *e = job_find(j, own, o);
        if (!e && name)
            e = job_find(j, kind, o);
        if (!e && (o->flags & OPT_REQUIRED))
            FAIL(ERR_USAGE, "%s: [%s] %s is missing; it has no default and must be %s", j->file,
                 heading, o->name, opt_allowed(o, j->arena));
        if (e && opt_parse(o, e->value, conf, j->arena) != ERR_OK) {
            err_prefix("%s", job_place(e, j->arena));
            return ERR_USAGE;
        }
        bool unset = !e && !o->dflt;
        log_key(j, &(struct job_seen){.heading = heading,
                                      .kind = kind,
                                      .name = name ? arena_strdup(j->arena, name) : NULL,
                                      .key = o->name,
                                      .value = unset ? NULL : opt_print(o, conf, j->arena),
                                      .entry = e});
    }
    return ERR_OK;
}

/* Where key of [KIND.NAME] stands: as it was read, or as the file spells it. */
const char *job_where(const struct job *j, const char *kind, const char *name, const char *key)
{
    const char *own = job_section_name(j, kind, name);
    const char *heading = job_has_section(j, own) ? own : kind;
    for (const struct job_seen *s = j->log->first; s; s = s->next) {
        if (!text_same(s->heading, heading) || !text_same(s->key, key))
            continue;
        if (s->entry)
            return job_place(s->entry, j->arena);
        if (s->value)
            return arena_printf(j->arena, "%s: [%s] %s = %s (default)", j->file, heading, s->key,
                                s->value);
    }
    const struct scan_entry *e = find_key(j, own, key);
    if (!e)
        e = find_key(j, kind, key);
    if (e)
        return job_place(e, j->arena);
    return arena_printf(j->arena, "%s: [%s] %s", j->file, heading, key);
}

int job_error(const struct job *j, const char *kind, const char *name, const char *key,
              const char *fmt, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(ERR_USAGE, "%s", text);
    err_prefix("%s", job_where(j, kind, name, key));
    return ERR_USAGE;
}

void job_print_resolved(const struct job *j, struct text *out)
{
    for (const struct job_seen *head = j->log->first; head; head = head->next) {
        bool printed = false;
        for (const struct job_seen *s = j->log->first; s != head && !printed; s = s->next)
            printed = text_same(s->heading, head->heading);
        if (printed)
            continue;
        text_printf(out, "%s[%s]\n", head == j->log->first ? "" : "\n", head->heading);
        for (const struct job_seen *s = head; s; s = s->next) {
            if (!text_same(s->heading, head->heading))
                continue;
            if (!s->value) {
                text_printf(out, "# %s is not set\n", s->key);
                continue;
            }
            /* values came through the scan or through expand_value(), so each can be written */
            const char *why = scan_write_entry(out, s->key, s->value);
            if (why)
                FATAL("[%s] %s: %s", s->heading, s->key, why);
        }
    }
}
