/* A job's entries as bytes, for the broadcast to the other ranks: a count, then strings that each
 * end in NUL.  Both ends run the same build, so that a damaged message is a broken invariant. */
#include "job/job_impl.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void put_string(struct text *t, const char *s)
{
    text_add(t, s, strlen(s) + 1);
}

static void put_int(struct text *t, int v)
{
    text_printf(t, "%d", v);
    text_add(t, "", 1);
}

void job_pack(const struct job *j, char **bytes, size_t *n_bytes)
{
    struct text t = {0};
    put_string(&t, j->file);
    put_int(&t, j->all.n_sections);
    for (int i = 0; i < j->all.n_sections; i++) {
        const struct scan_section *s = &j->all.sections[i];
        put_string(&t, s->name);
        put_string(&t, s->file);
        put_int(&t, s->line);
    }
    put_int(&t, j->all.n_entries);
    for (int i = 0; i < j->all.n_entries; i++) {
        const struct scan_entry *e = &j->all.entries[i];
        put_string(&t, e->section);
        put_string(&t, e->key);
        put_string(&t, e->value);
        put_string(&t, e->file);
        put_int(&t, e->line);
        put_int(&t, e->level);
        put_string(&t, e->heading ? e->heading : "");
    }
    *bytes = t.s;
    *n_bytes = t.n_bytes;
}

struct cursor {
    const char *at, *end;
    struct arena *a;
};

static const char *take_string(struct cursor *c)
{
    const char *s = c->at, *nul = memchr(s, 0, (size_t)(c->end - s));
    REQUIRE(nul);
    c->at = nul + 1;
    return arena_strndup(c->a, s, (size_t)(nul - s));
}

static int take_int(struct cursor *c)
{
    char *end;
    const char *s = take_string(c);
    long v = strtol(s, &end, 10);
    REQUIRE(*s && !*end && v >= 0 && v <= INT_MAX);
    return (int)v;
}

struct job *job_unpack(const char *bytes, size_t n_bytes, struct arena *a)
{
    struct cursor c = {bytes, bytes + n_bytes, a};
    struct job *j = arena_alloc(a, sizeof *j);
    j->arena = a;
    j->all.arena = a;
    j->file = take_string(&c);
    for (int n = take_int(&c); n > 0; n--) {
        struct scan_section s = {.name = take_string(&c)};
        s.file = take_string(&c);
        s.line = take_int(&c);
        scan_add_section(&j->all, s);
    }
    for (int n = take_int(&c); n > 0; n--) {
        struct scan_entry e = {.section = take_string(&c)};
        e.key = take_string(&c);
        e.value = take_string(&c);
        e.file = take_string(&c);
        e.line = take_int(&c);
        e.level = take_int(&c);
        e.heading = take_string(&c);
        if (!*e.heading)
            e.heading = NULL;
        scan_add_entry(&j->all, e);
    }
    REQUIRE(c.at == c.end);
    job_start_log(j);
    return j;
}
