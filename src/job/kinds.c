/* What is made from the kinds alone, without a job: help, and the proof that tables are sound. */
#include "job/job.h"

#include <string.h>

void job_help_kind(const struct section_kind *kind, struct text *out, struct arena *a)
{
    text_printf(out, "[%s]", kind->name);
    if (kind->may_be_named)
        text_printf(out, ", [%s.NAME]", kind->name);
    text_printf(out, ": %s\n", kind->help);
    opt_help(kind->opts, out, a);
    for (const struct section_variant *v = kind->variants; v && v->word; v++) {
        if (!v->opts || v->opts->type == OPT_END)
            continue;
        text_printf(out, " with %s = %s:\n", kind->type_key, v->word);
        opt_help(v->opts, out, a);
    }
}

static bool has_word(const struct opt *type, const char *word)
{
    for (int i = 0; type->words[i]; i++)
        if (opt_word_same(type->words[i], word))
            return true;
    return false;
}

/* Whether a spelling of o is one of the table's too. */
static bool shares_spelling(const struct opt *o, const struct opt *opts)
{
    const struct opt one[] = {*o, {.type = OPT_END}};
    if (opt_find(opts, o->name))
        return true;
    for (; opts->type != OPT_END; opts++)
        if (opt_find(one, opts->name))
            return true;
    return false;
}

static int check_kind(const struct section_kind *k, struct arena *a)
{
    TRY(opt_check_table(k->opts, a));
    if (!k->help || !*k->help)
        FAIL(ERR_INTERNAL, "no help");
    if ((k->type_key == NULL) != (k->variants == NULL))
        FAIL(ERR_INTERNAL, "a type key and variants go together");
    const struct opt *type = k->type_key ? opt_find(k->opts, k->type_key) : NULL;
    if (k->type_key && (!type || type->type != OPT_ENUM))
        FAIL(ERR_INTERNAL, "type key %s is no enum of its table", k->type_key);
    for (const struct section_variant *v = k->variants; v && v->word; v++) {
        if (!has_word(type, v->word))
            FAIL(ERR_INTERNAL, "%s cannot be %s", type->name, v->word);
        if (!v->opts)
            continue;
        TRY(opt_check_table(v->opts, a));
        for (const struct opt *o = v->opts; o->type != OPT_END; o++)
            if (shares_spelling(o, k->opts))
                FAIL(ERR_INTERNAL, "%s of %s is a key of every type", o->name, v->word);
    }
    return ERR_OK;
}

int job_check_kinds(const struct section_kind *const *kinds, struct arena *a)
{
    for (int i = 0; kinds[i]; i++) {
        for (int k = 0; k < i; k++)
            if (strcmp(kinds[i]->name, kinds[k]->name) == 0)
                FAIL(ERR_INTERNAL, "kind [%s] stands twice", kinds[i]->name);
        if (check_kind(kinds[i], a) != ERR_OK) {
            err_prefix("[%s]", kinds[i]->name);
            return ERR_INTERNAL;
        }
    }
    return ERR_OK;
}
