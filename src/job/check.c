/* A job against the kinds of sections: names that nobody knows, keys of another type, values that
 * do not parse, one key set twice by two spellings.  And the kinds' own tables: help, soundness. */
#include "job/job_impl.h"

#include "base/text.h"
#include <string.h>

static const struct section_variant *find_variant(const struct section_kind *k, const char *word)
{
    for (const struct section_variant *v = k->variants; word && v && v->word; v++)
        if (opt_word_same(v->word, word))
            return v;
    return NULL;
}

const struct section_kind *job_kind_of(const char *section, const struct section_kind *const *kinds,
                                       const char **name)
{
    for (int i = 0; kinds[i]; i++) {
        size_t n = strlen(kinds[i]->name);
        if (strncmp(section, kinds[i]->name, n) != 0 || (section[n] && section[n] != '.'))
            continue;
        *name = section[n] ? section + n + 1 : NULL;
        return kinds[i];
    }
    return NULL;
}

int job_unknown_section(const char *section, const struct section_kind *const *kinds,
                        struct arena *a)
{
    int n_kinds = 0;
    while (kinds[n_kinds])
        n_kinds++;
    const char **words = arena_alloc(a, sizeof *words * ((size_t)n_kinds + 1));
    struct text list = {0};
    for (int i = 0; i < n_kinds; i++) {
        words[i] = kinds[i]->name;
        text_printf(&list, "%s[%s]", i ? ", " : "", words[i]);
    }
    size_t n = strcspn(section, ".");
    const char *near = text_nearest(arena_strndup(a, section, n), words);
    if (near)
        err_set(ERR_USAGE, "no such section; did you mean [%s%s]?", near, section + n);
    else
        err_set(ERR_USAGE, "no such section; there are %s", list.s);
    err_prefix("[%s]", section);
    text_clear(&list);
    return ERR_USAGE;
}

static int check_section(const struct scan_section *s, const struct section_kind *const *kinds,
                         struct arena *a)
{
    const char *name;
    const struct section_kind *k = job_kind_of(s->name, kinds, &name);
    int rc = ERR_OK;
    if (!k) {
        rc = job_unknown_section(s->name, kinds, a);
    } else if (name && !k->may_be_named) {
        rc = err_set(ERR_USAGE, "[%s]: [%s] takes no name", s->name, k->name);
    } else if (name && strchr(name, '.')) {
        const char *dot = strchr(name, '.');
        rc = err_set(ERR_USAGE,
                     "[%s]: a name has no dots; nested keys are written %s.KEY = VALUE in "
                     "[%s.%.*s]",
                     s->name, dot + 1, k->name, (int)(dot - name), name);
    }
    if (rc != ERR_OK && s->line > 0)
        err_prefix("%s:%d", s->file, s->line);
    else if (rc != ERR_OK)
        err_prefix("%s", s->file);
    return rc;
}

/* The type of [KIND.NAME]: its own, else the plain section's, else the default. */
static const char *type_of(const struct job *j, const struct section_kind *k, const char *name)
{
    if (!k->type_key)
        return NULL;
    const struct opt *o = opt_find(k->opts, k->type_key);
    const struct scan_entry *e = job_find(j, job_section_name(j, k->name, name), o);
    if (!e && name)
        e = job_find(j, k->name, o);
    return e ? e->value : o->dflt;
}

/* The row of any variant: for a type like auto, which is none of them and turns out later. */
static const struct opt *any_variant_row(const struct section_kind *k, const char *key)
{
    const struct opt *o = NULL;
    for (const struct section_variant *v = k->variants; !o && v && v->word; v++)
        o = v->opts ? opt_find(v->opts, key) : NULL;
    return o;
}

/* The row that reads key in [KIND.NAME], or NULL. */
static const struct opt *find_row(const struct job *j, const struct section_kind *k,
                                  const char *name, const char *key)
{
    const struct opt *o = opt_find(k->opts, key);
    const struct section_variant *v = find_variant(k, type_of(j, k, name));
    if (!o)
        o = v ? opt_find(v->opts, key) : any_variant_row(k, key);
    if (o || name)
        return o;
    int n_names;
    const char *const *names = job_names(j, k->name, &n_names);
    for (int i = 0; i < n_names && !o; i++) {
        v = find_variant(k, type_of(j, k, names[i]));
        o = v ? opt_find(v->opts, key) : NULL;
    }
    return o;
}

/* Append each spelling of a table's keys, and a blank behind it. */
static void add_spellings(const struct opt *opts, struct text *t)
{
    for (const struct opt *o = opts; o && o->type != OPT_END; o++) {
        text_printf(t, "%s ", o->name);
        if (o->aliases)
            text_printf(t, "%s ", o->aliases);
    }
}

static const char *nearest_key(const struct section_kind *k, const struct section_variant *v,
                               const char *key, struct arena *a)
{
    struct text t = {0};
    add_spellings(k->opts, &t);
    add_spellings(v ? v->opts : NULL, &t);
    char *all = arena_strdup(a, t.s ? t.s : "");
    const char **words = arena_alloc(a, sizeof *words * (strlen(all) + 1));
    text_clear(&t);
    char *left = NULL;
    size_t n = 0;
    for (char *w = strtok_r(all, " ", &left); w; w = strtok_r(NULL, " ", &left))
        words[n++] = w;
    return text_nearest(key, words);
}

static bool kind_has(const struct section_kind *k, const char *key)
{
    bool has = opt_find(k->opts, key) != NULL;
    for (const struct section_variant *v = k->variants; !has && v && v->word; v++)
        has = opt_find(v->opts, key) != NULL;
    return has;
}

static int wrong_type(const struct section_kind *k, const char *key, const char *type)
{
    for (const struct section_variant *v = k->variants; v && v->word; v++)
        if (v->opts && opt_find(v->opts, key))
            FAIL(ERR_USAGE, "%s belongs to %s = %s, and this is %s = %s", key, k->type_key, v->word,
                 k->type_key, type);
    return ERR_OK;
}

int job_check_type(const struct job *j, const struct section_kind *k, const char *name,
                   const char *type)
{
    const struct section_variant *is = find_variant(k, type);
    const char *section = job_section_name(j, k->name, name);
    for (int i = 0; i < j->all.n_entries; i++) {
        const struct scan_entry *e = &j->all.entries[i];
        if (strcmp(e->section, section) != 0 || opt_find(k->opts, e->key) ||
            (is && is->opts && opt_find(is->opts, e->key)))
            continue;
        if (wrong_type(k, e->key, type) != ERR_OK)
            return job_error(j, k->name, name, e->key, "%s", err_text());
    }
    return ERR_OK;
}

/* Say where a key belongs that this section does not have. */
static int unknown_key(const struct job *j, const struct scan_entry *e,
                       const struct section_kind *k, const char *name,
                       const struct section_kind *const *kinds)
{
    const char *type = type_of(j, k, name);
    TRY(wrong_type(k, e->key, type));
    const char *near = nearest_key(k, find_variant(k, type), e->key, j->arena);
    for (int i = 0; kinds[i]; i++)
        if (kind_has(kinds[i], e->key))
            FAIL(ERR_USAGE, "[%s] has no such key; it belongs in [%s]", e->section, kinds[i]->name);
    if (near)
        FAIL(ERR_USAGE, "no such key; did you mean %s?", near);
    const char *dot = strchr(e->key, '.');
    if (dot && !name && k->may_be_named)
        FAIL(ERR_USAGE, "no such key, and the file has no section [%s.%.*s]", e->section,
             (int)(dot - e->key), e->key);
    FAIL(ERR_USAGE, "[%s] has no such key", e->section);
}

static int check_entry(const struct job *j, const struct scan_entry *e,
                       const struct section_kind *const *kinds, const struct opt **row)
{
    union { /* as large and as aligned as any field */
        struct opt_f64s numbers;
        struct opt_strs strings;
    } value;
    const char *name;
    const struct section_kind *k = job_kind_of(e->section, kinds, &name);
    *row = find_row(j, k, name, e->key);
    if (!*row)
        return unknown_key(j, e, k, name, kinds);
    struct opt at_zero = **row;
    at_zero.offset = 0;
    return opt_parse(&at_zero, e->value, &value, j->arena);
}

/* Two spellings of one key in one section of one file. */
static int check_spellings(const struct job *j, const struct opt *const *rows, int at)
{
    const struct scan_entry *e = &j->all.entries[at];
    for (int i = 0; i < at; i++) {
        const struct scan_entry *o = &j->all.entries[i];
        if (rows[i] != rows[at] || o->level != e->level || e->level == LEVEL_COMMAND_LINE ||
            strcmp(o->section, e->section) != 0 || text_same(o->value, e->value))
            continue;
        FAIL(ERR_USAGE, "line %d sets the same key by another name: %s = %s", o->line, o->key,
             o->value);
    }
    return ERR_OK;
}

/* A wrong type would make each of its keys look unknown: it is reported first. */
static int check_types(const struct job *j, const struct section_kind *const *kinds)
{
    for (int i = 0; i < j->all.n_entries; i++) {
        const struct scan_entry *e = &j->all.entries[i];
        const char *name;
        const struct section_kind *k = job_kind_of(e->section, kinds, &name);
        const struct opt *row, *type = k->type_key ? opt_find(k->opts, k->type_key) : NULL;
        if (!type || opt_find(k->opts, e->key) != type)
            continue;
        int rc = check_entry(j, e, kinds, &row);
        if (rc != ERR_OK) {
            err_prefix("%s", job_place(e, j->arena));
            return rc;
        }
    }
    return ERR_OK;
}

int job_check(const struct job *j, const struct section_kind *const *kinds)
{
    for (int i = 0; i < j->all.n_sections; i++)
        TRY(check_section(&j->all.sections[i], kinds, j->arena));
    TRY(check_types(j, kinds));
    const struct opt **rows = arena_alloc(j->arena, sizeof *rows * ((size_t)j->all.n_entries + 1));
    for (int i = 0; i < j->all.n_entries; i++) {
        int rc = check_entry(j, &j->all.entries[i], kinds, &rows[i]);
        if (rc == ERR_OK)
            rc = check_spellings(j, rows, i);
        if (rc != ERR_OK) {
            err_prefix("%s", job_place(&j->all.entries[i], j->arena));
            return rc;
        }
    }
    return ERR_OK;
}
