/* --help made from an option table, and the proof that a table is sound. */
#include "job/opt.h"

#include "base/text.h"
#include "job/scan.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { HELP_WIDTH = 100, HELP_INDENT = 2, HELP_LEFT_MAX = 36 };

/* "key = default" as the left column has it. */
static const char *help_left(const struct opt *o, struct arena *a)
{
    if (o->dflt)
        return arena_printf(a, "%s = %s", o->name, *o->dflt ? o->dflt : "\"\"");
    if (o->flags & OPT_REQUIRED)
        return arena_printf(a, "%s (required)", o->name);
    return o->name;
}

/* Columns, not bytes: UTF-8 continuation bytes take no room. */
static int columns(const char *s, size_t n_bytes)
{
    int n = 0;
    for (size_t i = 0; i < n_bytes; i++)
        n += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n;
}

/* Words wrapped at HELP_WIDTH, every line but the first indented; at is the present column. */
static void add_wrapped(struct text *out, const char *words, int indent, int at)
{
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " ");
        int width = columns(p, n);
        if (at > indent && at + 1 + width > HELP_WIDTH) {
            text_printf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            text_printf(out, " ");
            at++;
        }
        text_add(out, p, n);
        at += width;
        p += n;
        p += strspn(p, " ");
    }
    text_printf(out, "\n");
}

void opt_help(const struct opt *opts, struct text *out, struct arena *a)
{
    int left = 0;
    for (const struct opt *o = opts; o->type != OPT_END; o++) {
        const char *s = help_left(o, a);
        int n = columns(s, strlen(s));
        if (!(o->flags & OPT_HIDDEN) && n > left && n <= HELP_LEFT_MAX)
            left = n;
    }
    int indent = HELP_INDENT + left + 2;
    for (const struct opt *o = opts; o->type != OPT_END; o++) {
        if (o->flags & OPT_HIDDEN)
            continue;
        const char *s = help_left(o, a);
        int n = columns(s, strlen(s));
        text_printf(out, "%*s%s", HELP_INDENT, "", s);
        if (n > left)
            text_printf(out, "\n%*s", indent, "");
        else
            text_printf(out, "%*s", left + 2 - n, "");
        const char *words =
            arena_printf(a, "%s; %s%s%s", o->help, opt_allowed(o, a),
                         o->aliases ? "; also written " : "", o->aliases ? o->aliases : "");
        add_wrapped(out, words, indent, indent);
    }
}

static bool is_lower_name(const char *s)
{
    if (!*s || *s == '.' || strlen(s) > SCAN_NAME_MAX)
        return false;
    for (const char *c = s; *c; c++)
        if (!(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_' ||
              (*c == '.' && c[1] && c[1] != '.')))
            return false;
    return true;
}

/* Whether another row of the table answers to the first n bytes of word. */
static bool is_taken(const struct opt *opts, const struct opt *self, const char *word, size_t n,
                     struct arena *a)
{
    const char *key = arena_strndup(a, word, n);
    const struct opt *found = opt_find(opts, key);
    return found != self || opt_find(self + 1, key) != NULL;
}

static int check_names(const struct opt *opts, const struct opt *o, struct arena *a)
{
    if (!is_lower_name(o->name))
        FAIL(ERR_INTERNAL, "key \"%s\" is not made of a-z, 0-9, _ and single dots", o->name);
    if (is_taken(opts, o, o->name, strlen(o->name), a))
        FAIL(ERR_INTERNAL, "key %s stands twice in its table", o->name);
    for (const char *p = o->aliases; p && *p;) {
        size_t n = strcspn(p, " ");
        if (n == 0 || !is_lower_name(arena_strndup(a, p, n)))
            FAIL(ERR_INTERNAL, "aliases \"%s\" of %s are not lower-case names", o->aliases,
                 o->name);
        if (is_taken(opts, o, p, n, a) || text_same(o->name, arena_strndup(a, p, n)))
            FAIL(ERR_INTERNAL, "alias %.*s of %s is taken", (int)n, p, o->name);
        p += n;
        p += *p == ' ';
    }
    return ERR_OK;
}

static int check_bounds(const struct opt *o)
{
    bool number = o->type == OPT_I64 || o->type == OPT_F64;
    bool range = number || o->type == OPT_I64S || o->type == OPT_F64S;
    if (range && !(o->min <= o->max))
        FAIL(ERR_INTERNAL, "%s has no value in its range", o->name);
    if (range && o->min == 0 && o->max == 0)
        FAIL(ERR_INTERNAL, "%s has no range", o->name);
    if ((o->flags & OPT_AUTO) && !number)
        FAIL(ERR_INTERNAL, "%s: only a number can be auto", o->name);
    if ((o->flags & OPT_PATH) && o->type != OPT_STR && o->type != OPT_STRS)
        FAIL(ERR_INTERNAL, "%s: only a text can be a path", o->name);
    if ((o->type == OPT_ENUM) != (o->words && o->words[0]))
        FAIL(ERR_INTERNAL, "%s: an enum, and nothing else, has words", o->name);
    return ERR_OK;
}

static int check_default(const struct opt *o, struct arena *a)
{
    bool may_be_unset = o->type >= OPT_I64S || o->type == OPT_STR;
    if ((o->flags & OPT_REQUIRED) && o->dflt)
        FAIL(ERR_INTERNAL, "%s is required and has a default", o->name);
    if (!o->dflt && !(o->flags & OPT_REQUIRED) && !may_be_unset)
        FAIL(ERR_INTERNAL, "%s has no default", o->name);
    if (!o->dflt)
        return ERR_OK;
    if (strchr(o->dflt, '~'))
        FAIL(ERR_INTERNAL, "%s: defaults are not expanded, ~ has no meaning there", o->name);
    struct opt at_zero = *o;
    at_zero.offset = 0;
    union {
        struct opt_f64s numbers;
        struct opt_strs strings;
    } value;
    if (opt_parse(&at_zero, o->dflt, &value, a) != ERR_OK) {
        err_prefix("default \"%s\" of %s", o->dflt, o->name);
        return ERR_INTERNAL;
    }
    return ERR_OK;
}

int opt_check_table(const struct opt *opts, struct arena *a)
{
    for (const struct opt *o = opts; o->type != OPT_END; o++) {
        TRY(check_names(opts, o, a));
        TRY(check_bounds(o));
        TRY(check_default(o, a));
        if (!o->help || !*o->help)
            FAIL(ERR_INTERNAL, "%s has no help", o->name);
    }
    return ERR_OK;
}
