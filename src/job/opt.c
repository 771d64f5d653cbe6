/* Option tables: looking a key up, and a field's value and its bounds as text.  Parsing is in
 * opt_parse.c, help and the tables' own check in opt_help.c. */
#include "job/opt.h"

#include "base/text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_alias(const char *aliases, const char *key)
{
    size_t n_key = strlen(key);
    while (aliases && *aliases) {
        size_t n = strcspn(aliases, " ");
        if (n == n_key && strncasecmp(aliases, key, n) == 0)
            return true;
        aliases += n;
        aliases += strspn(aliases, " ");
    }
    return false;
}

const struct opt *opt_find(const struct opt *opts, const char *key)
{
    for (const struct opt *o = opts; o && o->type != OPT_END; o++)
        if (text_same(o->name, key) || has_alias(o->aliases, key))
            return o;
    return NULL;
}

bool opt_word_same(const char *a, const char *b)
{
    for (;; a++, b++) {
        int x = *a == '-' ? '_' : tolower((unsigned char)*a);
        int y = *b == '-' ? '_' : tolower((unsigned char)*b);
        if (x != y)
            return false;
        if (x == 0)
            return true;
    }
}

int opt_defaults(const struct opt *opts, void *conf, struct arena *a)
{
    for (const struct opt *o = opts; o->type != OPT_END; o++) {
        if (o->dflt) {
            if (opt_parse(o, o->dflt, conf, a) != ERR_OK) {
                err_prefix("default of %s", o->name);
                return ERR_INTERNAL;
            }
            continue;
        }
        char *field = (char *)conf + o->offset;
        static const size_t n_bytes[] = {
            [OPT_BOOL] = sizeof(bool),
            [OPT_I64] = sizeof(int64_t),
            [OPT_F64] = sizeof(double),
            [OPT_STR] = sizeof(char *),
            [OPT_ENUM] = sizeof(int),
            [OPT_I64S] = sizeof(struct opt_i64s),
            [OPT_F64S] = sizeof(struct opt_f64s),
            [OPT_STRS] = sizeof(struct opt_strs),
        };
        memset(field, 0, n_bytes[o->type]);
    }
    return ERR_OK;
}

/* The shortest decimal text that reads back to the same double; 100 rather than 1e+02. */
static void add_f64(struct text *t, double v)
{
    char buf[40];
    if (fabs(v) < 1e15 && v == floor(v)) {
        text_printf(t, "%.0f", v);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    text_printf(t, "%s", buf);
}

static void print_list(const struct opt *o, const char *field, struct text *t)
{
    if (o->type == OPT_I64S) {
        const struct opt_i64s *l = (const void *)field;
        for (int i = 0; i < l->n; i++)
            text_printf(t, "%s%jd", i ? ", " : "", (intmax_t)l->v[i]);
    } else if (o->type == OPT_F64S) {
        const struct opt_f64s *l = (const void *)field;
        for (int i = 0; i < l->n; i++) {
            text_printf(t, "%s", i ? ", " : "");
            add_f64(t, l->v[i]);
        }
    } else {
        /* no blank behind the comma: a list never prints longer than it was written */
        const struct opt_strs *l = (const void *)field;
        for (int i = 0; i < l->n; i++)
            text_printf(t, "%s%s", i ? "," : "", l->v[i]);
    }
}

const char *opt_print(const struct opt *o, const void *conf, struct arena *a)
{
    const char *field = (const char *)conf + o->offset;
    struct text t = {0};
    switch (o->type) {
    case OPT_BOOL:
        return *(const bool *)(const void *)field ? "true" : "false";
    case OPT_ENUM:
        return o->words[*(const int *)(const void *)field];
    case OPT_STR: {
        const char *s = *(const char *const *)(const void *)field;
        return s ? arena_strdup(a, s) : NULL;
    }
    case OPT_I64: {
        int64_t v = *(const int64_t *)(const void *)field;
        if ((o->flags & OPT_AUTO) && v == OPT_AUTO_I64)
            return "auto";
        return arena_printf(a, "%jd", (intmax_t)v);
    }
    case OPT_F64: {
        double v = *(const double *)(const void *)field;
        if ((o->flags & OPT_AUTO) && opt_is_auto(v))
            return "auto";
        add_f64(&t, v);
        break;
    }
    case OPT_I64S:
    case OPT_F64S:
    case OPT_STRS:
        print_list(o, field, &t);
        break;
    case OPT_END:
        FATAL("printing the end of an option table");
    }
    const char *s = arena_strdup(a, t.s ? t.s : "");
    text_clear(&t);
    return s;
}

static void add_range(const struct opt *o, struct text *t)
{
    bool whole = o->type == OPT_I64 || o->type == OPT_I64S;
    /* bounds that a 64-bit integer cannot pass say nothing */
    bool low = o->min > -INFINITY && !(whole && o->min <= -0x1p63);
    bool high = o->max < INFINITY && !(whole && o->max >= 0x1p63);
    if (low && high && o->min == o->max) {
        text_printf(t, ", always ");
        add_f64(t, o->min);
        return;
    }
    if (low) {
        text_printf(t, "%s", high ? " from " : ", at least ");
        add_f64(t, o->min);
    }
    if (high) {
        text_printf(t, "%s", low ? " to " : ", at most ");
        add_f64(t, o->max);
    }
}

const char *opt_allowed(const struct opt *o, struct arena *a)
{
    static const char *const what[] = {
        [OPT_BOOL] = "true or false",     [OPT_I64] = "an integer",
        [OPT_F64] = "a number",           [OPT_STR] = "a text",
        [OPT_ENUM] = "one of: ",          [OPT_I64S] = "a list of integers",
        [OPT_F64S] = "a list of numbers", [OPT_STRS] = "a list of words, separated by commas",
    };
    if (o->flags & OPT_PATH)
        return o->type == OPT_STR ? "a path" : "a list of paths, separated by commas";
    struct text t = {0};
    text_printf(&t, "%s", what[o->type]);
    if (o->type == OPT_ENUM)
        for (int i = 0; o->words[i]; i++)
            text_printf(&t, "%s%s", i ? ", " : "", o->words[i]);
    if (o->type == OPT_I64 || o->type == OPT_F64 || o->type == OPT_I64S || o->type == OPT_F64S)
        add_range(o, &t);
    if (o->flags & OPT_AUTO)
        text_printf(&t, ", or auto");
    const char *s = arena_strdup(a, t.s);
    text_clear(&t);
    return s;
}
