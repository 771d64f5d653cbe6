/* Sections by the names that other systems' files give them: [fsdp_config] is [plugin] with type =
 * fsdp.  Messages go on naming what was written. */
#include "job/job_impl.h"

#include "base/text.h"

static const struct section_alias *find_alias(const struct section_kind *k, const char *name)
{
    for (const struct section_alias *s = k->aliases; s && s->name; s++)
        if (text_same(s->name, name))
            return s;
    return NULL;
}

static int fail_at(const struct scan_section *s, const char *why, struct arena *a)
{
    err_set(ERR_USAGE, "[%s]: %s", s->name, why);
    err_prefix("%s", s->line > 0 ? arena_printf(a, "%s:%d", s->file, s->line) : s->file);
    return ERR_USAGE;
}

/* Entries move, and the type that the name says stands beside them. */
static int move_entries(struct job *j, const struct section_kind *k,
                        const struct section_alias *alias, const struct scan_section *section)
{
    int level = section->line > 0 ? LEVEL_FILE : LEVEL_COMMAND_LINE;
    for (int i = 0; i < j->all.n_entries; i++) {
        struct scan_entry *e = &j->all.entries[i];
        if (!text_same(e->section, alias->name))
            continue;
        if (text_same(e->key, k->type_key)) {
            err_set(ERR_USAGE, "[%s] is of type %s: it has no key %s", alias->name, alias->type,
                    e->key);
            err_prefix("%s", job_place(e, j->arena));
            return ERR_USAGE;
        }
        e->section = k->name;
        e->heading = alias->name;
        level = e->level > level ? e->level : level;
    }
    scan_add_entry(&j->all, (struct scan_entry){.section = k->name,
                                                .key = k->type_key,
                                                .value = alias->type,
                                                .file = section->file,
                                                .line = section->line,
                                                .level = level,
                                                .heading = alias->name});
    return ERR_OK;
}

/* Where the command line has the plain name as well, one of the two sections goes. */
static void rename_section(struct job *j, const struct section_kind *k, int at)
{
    struct scan *all = &j->all;
    all->sections[at].name = k->name;
    for (int i = 0; i < all->n_sections; i++)
        if (i != at && text_same(all->sections[i].name, k->name)) {
            for (int m = i; m + 1 < all->n_sections; m++)
                all->sections[m] = all->sections[m + 1];
            all->n_sections--;
            return;
        }
}

static int merge_kind(struct job *j, const struct section_kind *k)
{
    int taken = -1;
    for (int i = 0; i < j->all.n_sections; i++) {
        const struct scan_section *s = &j->all.sections[i];
        const struct section_alias *alias = find_alias(k, s->name);
        bool plain = text_same(s->name, k->name) && s->line > 0;
        if (alias && alias->refused)
            return fail_at(s, alias->refused, j->arena);
        if (!alias && !plain)
            continue;
        if (taken >= 0)
            return fail_at(s,
                           arena_printf(j->arena,
                                        "is the [%s] without a name, and so is [%s]: give them "
                                        "names, [%s.NAME], and a type",
                                        k->name, j->all.sections[taken].name, k->name),
                           j->arena);
        taken = i;
    }
    const struct section_alias *alias =
        taken >= 0 ? find_alias(k, j->all.sections[taken].name) : NULL;
    if (!alias)
        return ERR_OK;
    TRY(move_entries(j, k, alias, &j->all.sections[taken]));
    rename_section(j, k, taken);
    return ERR_OK;
}

int job_merge_aliases(struct job *j, const struct section_kind *const *kinds)
{
    for (int i = 0; kinds[i]; i++)
        if (kinds[i]->aliases)
            TRY(merge_kind(j, kinds[i]));
    return ERR_OK;
}
