/* Expansion happens once, on the rank that reads the file: nodes may differ in environment. */
#include "job/expand.h"

#include "base/text.h"
#include "job/scan.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static size_t name_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return isdigit((unsigned char)s[0]) ? 0 : n;
}

static int add_variable(struct text *t, const char *name, size_t n)
{
    struct text key = {0};
    text_add(&key, name, n);
    const char *v = getenv(key.s);
    text_clear(&key);
    if (!v)
        FAIL(ERR_USAGE, "the environment has no variable %.*s", (int)n, name);
    text_add(t, v, strlen(v));
    return ERR_OK;
}

static int add_expanded(struct text *t, const char *value)
{
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, "$");
        text_add(t, p, n);
        p += n;
        if (!*p)
            break;
        if (p[1] == '$') {
            text_add(t, "$", 1);
            p += 2;
            continue;
        }
        bool braces = p[1] == '{';
        const char *name = p + 1 + braces;
        n = name_length(name);
        if (n == 0)
            FAIL(ERR_USAGE, "$ begins a variable's name ($NAME or ${NAME}); write $$ for a dollar "
                            "sign");
        if (braces && name[n] != '}')
            FAIL(ERR_USAGE, "${%.*s lacks its }", (int)n, name);
        TRY(add_variable(t, name, n));
        p = name + n + braces;
    }
    return ERR_OK;
}

/* Whether a path may begin at p: the start, or behind [ or a comma and blanks. */
static bool is_item_start(const char *value, const char *p)
{
    while (p > value && (p[-1] == ' ' || p[-1] == '\t'))
        p--;
    return p == value || p[-1] == ',' || (p[-1] == '[' && p - 1 == value);
}

static int add_home(struct text *t, const char *value)
{
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, "~");
        text_add(t, p, n);
        p += n;
        if (!*p)
            break;
        if (!is_item_start(value, p)) {
            text_add(t, p++, 1);
            continue;
        }
        if (p[1] && !strchr("/, \t]", p[1]))
            FAIL(ERR_USAGE, "~ stands for the own home folder only (~/...); write the whole path");
        TRY(add_variable(t, "HOME", 4));
        p++;
    }
    return ERR_OK;
}

/* What comes out must be a value that a file could hold: the resolved job is written as one. */
static int check_result(const char *value)
{
    if (!*value)
        FAIL(ERR_USAGE, "the value is empty once its variables are replaced");
    struct text t = {0};
    const char *why = scan_write_entry(&t, "key", value);
    text_clear(&t);
    if (why)
        FAIL(ERR_USAGE, "once its variables are replaced, %s", why);
    return ERR_OK;
}

int expand_value(const char *value, struct arena *a, const char **out)
{
    *out = value;
    if (!strpbrk(value, "$~"))
        return ERR_OK;
    struct text variables = {0}, whole = {0};
    int rc = add_expanded(&variables, value);
    if (rc == ERR_OK)
        rc = add_home(&whole, variables.s ? variables.s : "");
    if (rc == ERR_OK)
        rc = check_result(whole.s ? whole.s : "");
    if (rc == ERR_OK)
        *out = arena_strdup(a, whole.s);
    text_clear(&variables);
    text_clear(&whole);
    return rc;
}
