/* A value's text into its field, read to the last character: no octal, no hexadecimal, no "12abc"
 * that counts as 12.  Numbers are read in the C locale, which no part of the program leaves. */
#include "job/opt.h"

#include "base/text.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* NULL, or why s is no decimal integer ("" where there is no more to say than what is allowed). */
static const char *read_i64(const char *s, int64_t *v)
{
    static const char *const too_large = "too large for 64 bits";
    const char *p = s + (*s == '-' || *s == '+');
    if (!is_digit(*p))
        return "";
    if (*p == '0' && is_digit(p[1]))
        return "a leading zero (elsewhere it means octal)";
    int64_t n = 0;
    for (; is_digit(*p); p++) {
        int digit = *p - '0';
        if (n > (INT64_MAX - digit) / 10)
            return too_large;
        n = n * 10 + digit;
    }
    if ((*p == 'e' || *p == 'E') && is_digit(p[1 + (p[1] == '+')])) {
        int zeros = 0;
        for (p += 1 + (p[1] == '+'); is_digit(*p); p++)
            zeros = zeros < 100 ? zeros * 10 + (*p - '0') : zeros;
        for (; zeros > 0 && n > 0; zeros--) {
            if (n > INT64_MAX / 10)
                return too_large;
            n *= 10;
        }
    }
    if (*p == '_' || *p == '\'')
        return "digits are written without separators";
    if (*p)
        return "";
    *v = *s == '-' ? -n : n;
    return NULL;
}

static const char *read_f64(const char *s, double *v)
{
    const char *p = s + (*s == '-' || *s == '+');
    int n_digits = 0;
    for (; is_digit(*p); p++)
        n_digits++;
    if (*p == '.')
        for (p++; is_digit(*p); p++)
            n_digits++;
    if (n_digits == 0)
        return "";
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '+' || p[1] == '-');
        if (!is_digit(*p))
            return "";
        while (is_digit(*p))
            p++;
    }
    if (*p == ',')
        return "the decimal sign is a point";
    if (*p)
        return "";
    errno = 0;
    double x = strtod(s, NULL);
    if (errno == ERANGE && (x == 0 || isinf(x)))
        return x == 0 ? "too near to zero for a double" : "too large for a double";
    *v = x;
    return NULL;
}

/* Refuse value, or a list's item, saying what is allowed. */
static int refuse(const struct opt *o, const char *item, const char *why, struct arena *a)
{
    const char *allowed = opt_allowed(o, a);
    if (item && *why)
        FAIL(ERR_USAGE, "\"%s\": %s; must be %s", item, why, allowed);
    if (item)
        FAIL(ERR_USAGE, "\"%s\" does not fit; must be %s", item, allowed);
    if (*why)
        FAIL(ERR_USAGE, "%s; must be %s", why, allowed);
    FAIL(ERR_USAGE, "must be %s", allowed);
}

/* item is value where it is part of a list, else NULL. */
static int parse_i64(const struct opt *o, const char *value, const char *item, int64_t *v,
                     struct arena *a)
{
    if ((o->flags & OPT_AUTO) && text_same(value, "auto")) {
        *v = OPT_AUTO_I64;
        return ERR_OK;
    }
    int64_t n = 0;
    const char *why = read_i64(value, &n);
    if (!why && ((double)n < o->min || (double)n > o->max))
        why = "";
    if (why)
        return refuse(o, item, why, a);
    *v = n;
    return ERR_OK;
}

static int parse_f64(const struct opt *o, const char *value, const char *item, double *v,
                     struct arena *a)
{
    if ((o->flags & OPT_AUTO) && text_same(value, "auto")) {
        *v = OPT_AUTO_F64;
        return ERR_OK;
    }
    double x = 0;
    const char *why = read_f64(value, &x);
    if (!why && (x < o->min || x > o->max))
        why = "";
    if (why)
        return refuse(o, item, why, a);
    *v = x;
    return ERR_OK;
}

static int parse_bool(const struct opt *o, const char *value, bool *v, struct arena *a)
{
    static const char *const yes[] = {"true", "yes", "on", "1", NULL};
    static const char *const no[] = {"false", "no", "off", "0", NULL};
    for (int i = 0; yes[i]; i++) {
        bool is_yes = text_same(value, yes[i]);
        if (is_yes || text_same(value, no[i])) {
            *v = is_yes;
            return ERR_OK;
        }
    }
    return refuse(o, NULL, "", a);
}

static int parse_enum(const struct opt *o, const char *value, int *v, struct arena *a)
{
    for (int i = 0; o->words[i]; i++)
        if (opt_word_same(value, o->words[i])) {
            *v = i;
            return ERR_OK;
        }
    const char *near = text_nearest(value, o->words);
    const char *allowed = opt_allowed(o, a);
    if (near)
        FAIL(ERR_USAGE, "must be %s; did you mean %s?", allowed, near);
    FAIL(ERR_USAGE, "must be %s", allowed);
}

static int parse_str(const struct opt *o, const char *value, const char **v, struct arena *a)
{
    if ((o->flags & OPT_PATH) && !*value)
        FAIL(ERR_USAGE, "a path may not be empty");
    *v = arena_strdup(a, value);
    return ERR_OK;
}

static const char *skip_blanks(const char *s)
{
    return s + strspn(s, " \t");
}

struct items {
    int n;
    const char *v[OPT_LIST_MAX];
};

/* Cut a list at commas and, if blanks is set, at blanks. */
static int split(const struct opt *o, const char *value, bool blanks, struct items *out,
                 struct arena *a)
{
    const char *p = skip_blanks(value), *end = p + strlen(p);
    while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    bool opens = p < end && *p == '[', closes = p < end && end[-1] == ']';
    /* a word may begin or end with the [ab] of a pattern, a number may not */
    if (opens != closes && o->type != OPT_STRS)
        return refuse(o, NULL, "[ and ] stand around a list together or not at all", a);
    if (opens && closes) {
        p = skip_blanks(p + 1);
        end--;
    }
    out->n = 0;
    for (bool more = p < end; more;) {
        size_t n_left = (size_t)(end - p), n = 0;
        while (n < n_left && p[n] != ',' && !(blanks && (p[n] == ' ' || p[n] == '\t')))
            n++;
        size_t n_item = n;
        while (n_item > 0 && (p[n_item - 1] == ' ' || p[n_item - 1] == '\t'))
            n_item--;
        if (n_item == 0)
            return refuse(o, NULL, "an item of the list is empty", a);
        if (out->n == OPT_LIST_MAX)
            FAIL(ERR_USAGE, "a list has at most %d items", OPT_LIST_MAX);
        out->v[out->n++] = arena_strndup(a, p, n_item);
        const char *next = p + n;
        while (next < end && (*next == ' ' || *next == '\t'))
            next++;
        more = next < end;
        if (more && *next == ',')
            next++;
        while (next < end && (*next == ' ' || *next == '\t'))
            next++;
        p = next;
    }
    return ERR_OK;
}

static int parse_list(const struct opt *o, const char *value, char *field, struct arena *a)
{
    struct items items;
    TRY(split(o, value, o->type != OPT_STRS, &items, a));
    if (o->type == OPT_I64S) {
        struct opt_i64s *l = (void *)field;
        for (int i = 0; i < items.n; i++)
            TRY(parse_i64(o, items.v[i], items.v[i], &l->v[i], a));
        l->n = items.n;
    } else if (o->type == OPT_F64S) {
        struct opt_f64s *l = (void *)field;
        for (int i = 0; i < items.n; i++)
            TRY(parse_f64(o, items.v[i], items.v[i], &l->v[i], a));
        l->n = items.n;
    } else {
        struct opt_strs *l = (void *)field;
        memcpy(l->v, items.v, sizeof(items.v[0]) * (size_t)items.n);
        l->n = items.n;
    }
    return ERR_OK;
}

int opt_parse(const struct opt *o, const char *value, void *conf, struct arena *a)
{
    char *field = (char *)conf + o->offset;
    switch (o->type) {
    case OPT_BOOL:
        return parse_bool(o, value, (bool *)(void *)field, a);
    case OPT_I64:
        return parse_i64(o, value, NULL, (int64_t *)(void *)field, a);
    case OPT_F64:
        return parse_f64(o, value, NULL, (double *)(void *)field, a);
    case OPT_STR:
        return parse_str(o, value, (const char **)(void *)field, a);
    case OPT_ENUM:
        return parse_enum(o, value, (int *)(void *)field, a);
    case OPT_I64S:
    case OPT_F64S:
    case OPT_STRS:
        return parse_list(o, value, field, a);
    case OPT_END:
        break;
    }
    FATAL("parsing the end of an option table");
}
