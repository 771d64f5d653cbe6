/* Job file bytes to entries, one line at a time, without any backtracking or line joining. */
#include "job/scan.h"

#include "base/text.h"
#include <string.h>

struct line {
    const char *file;
    int number;
    const char *s; /* not NUL-terminated, blanks cut at both ends */
    size_t n_bytes;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void trim(const char **s, size_t *n)
{
    while (*n > 0 && is_blank(**s)) {
        (*s)++;
        (*n)--;
    }
    while (*n > 0 && is_blank((*s)[*n - 1]))
        (*n)--;
}

/* How much of a text an error message quotes. */
static int shown(size_t n_bytes)
{
    return n_bytes > 60 ? 60 : (int)n_bytes;
}

#define LINE_FAIL(line, ...)                                                                       \
    do {                                                                                           \
        err_set(ERR_USAGE, __VA_ARGS__);                                                           \
        err_prefix("%s:%d", (line)->file, (line)->number);                                         \
        return ERR_USAGE;                                                                          \
    } while (0)

static int check_start(const char *file, const char *text, size_t n)
{
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        FAIL(ERR_USAGE, "%s:1: begins with a byte order mark; save it as UTF-8 without one", file);
    if (n >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
        FAIL(ERR_USAGE, "%s:1: is UTF-16; save it as UTF-8", file);
    return ERR_OK;
}

/* What holds for every line, comments included. */
static int check_bytes(const struct line *l)
{
    for (size_t i = 0; i < l->n_bytes; i++) {
        unsigned char c = (unsigned char)l->s[i];
        if (c == 0)
            LINE_FAIL(l, "a NUL byte; is this a text file?");
        if ((c < 32 && c != '\t') || c == 127)
            LINE_FAIL(l, "a control character (byte 0x%02x)", c);
    }
    size_t at;
    if (!scan_is_utf8(l->s, l->n_bytes, &at))
        LINE_FAIL(l, "byte %zu of the line is not UTF-8", at + 1);
    if (l->n_bytes > 0 && l->s[l->n_bytes - 1] == '\\')
        LINE_FAIL(l, "ends in \\, which INI readers take as \"goes on in the next line\"; a value "
                     "stands on one line");
    return ERR_OK;
}

static int scan_header(const struct line *l, struct scan *out, const char **section)
{
    const char *close = memchr(l->s, ']', l->n_bytes);
    if (!close)
        LINE_FAIL(l, "a section header ends in ]");
    const char *rest = close + 1;
    size_t n_rest = l->n_bytes - (size_t)(rest - l->s);
    trim(&rest, &n_rest);
    if (n_rest > 0 && *rest != ';' && *rest != '#')
        LINE_FAIL(l, "text behind the section header: \"%.*s\"", shown(n_rest), rest);
    const char *name = l->s + 1, *why = NULL;
    size_t n_name = (size_t)(close - name);
    trim(&name, &n_name);
    if (n_name == 0)
        LINE_FAIL(l, "an empty section name");
    const char *lower = scan_name(name, n_name, out->arena, &why);
    if (!lower)
        LINE_FAIL(l, "section [%.*s]: %s", shown(n_name), name, why);
    for (int i = 0; i < out->n_sections; i++)
        if (strcmp(out->sections[i].name, lower) == 0)
            LINE_FAIL(l, "section [%s] stands twice, first in line %d; merge the two", lower,
                      out->sections[i].line);
    scan_add_section(out, (struct scan_section){lower, l->file, l->number});
    *section = lower;
    return ERR_OK;
}

/* Cut a value that begins with a quote at the closing one. */
static int scan_quoted(const struct line *l, const char **v, size_t *n)
{
    char quote = **v;
    const char *inside = *v + 1;
    const char *close = memchr(inside, quote, *n - 1);
    if (!close)
        LINE_FAIL(l, "no closing %c: %.*s", quote, shown(*n), *v);
    const char *rest = close + 1;
    size_t n_inside = (size_t)(close - inside), n_rest = *n - n_inside - 2;
    bool apart = n_rest == 0 || is_blank(*rest);
    trim(&rest, &n_rest);
    if (n_rest > 0 && (!apart || (*rest != ';' && *rest != '#')))
        LINE_FAIL(l,
                  "text behind the closing quote: \"%.*s\"; quotes stand around the whole value, "
                  "and a comment after a blank",
                  shown(n_rest), rest);
    /* iniparser 4.1 and 4.2 read escapes differently */
    if (memchr(inside, '\\', n_inside))
        LINE_FAIL(l, "a \\ inside quotes; there are no escapes, write the value without quotes");
    *v = inside;
    *n = n_inside;
    return ERR_OK;
}

static int scan_plain(const struct line *l, const char **v, size_t *n)
{
    int n_quotes = 0;
    for (size_t i = 0; i < *n; i++) {
        char c = (*v)[i];
        n_quotes += c == '"';
        if (c != ';' && c != '#')
            continue;
        if (i > 0 && !is_blank((*v)[i - 1]))
            LINE_FAIL(l,
                      "%c without a blank before it: \"%.*s\"; quote the value if it belongs to "
                      "it, put a blank before it if it begins a comment",
                      c, shown(*n), *v);
        if (n_quotes % 2 != 0)
            LINE_FAIL(l, "%c inside quotes that do not stand around the whole value: \"%.*s\"", c,
                      shown(*n), *v);
        *n = i;
        break;
    }
    trim(v, n);
    return ERR_OK;
}

static int scan_value(const struct line *l, const char *key, const char *v, size_t n,
                      const char **out, struct arena *a)
{
    bool empty_is_meant = false;
    bool blank_before = n == 0 || is_blank(*v) || (*v != ';' && *v != '#');
    trim(&v, &n);
    if (!blank_before)
        LINE_FAIL(l, "%c without a blank before it: \"%.*s\"; quote the value", *v, shown(n), v);
    if (n > 0 && (*v == '"' || *v == '\'')) {
        empty_is_meant = true;
        TRY(scan_quoted(l, &v, &n));
    } else {
        TRY(scan_plain(l, &v, &n));
    }
    if (n == 0 && !empty_is_meant)
        LINE_FAIL(l, "%s has no value; write %s = \"\" if an empty one is meant", key, key);
    if (n > SCAN_VALUE_MAX)
        LINE_FAIL(l, "%s has a value of %zu bytes; at most %d", key, n, SCAN_VALUE_MAX);
    *out = arena_strndup(a, v, n);
    return ERR_OK;
}

static int scan_key(const struct line *l, const char *key, size_t n, const char **out,
                    struct arena *a)
{
    const char *why = NULL;
    if (n == 0)
        LINE_FAIL(l, "no key before =");
    const char *colon = memchr(key, ':', n);
    if (colon && (colon + 1 == key + n || is_blank(colon[1])))
        LINE_FAIL(l, "\"%.*s\": this is INI: write =", shown(n), key);
    *out = scan_name(key, n, a, &why);
    if (!*out)
        LINE_FAIL(l, "key \"%.*s\": %s", shown(n), key, why);
    return ERR_OK;
}

static int scan_entry_line(const struct line *l, const char *section, int first, struct scan *out)
{
    const char *equals = memchr(l->s, '=', l->n_bytes);
    const char *colon = memchr(l->s, ':', l->n_bytes);
    if (!equals && colon)
        LINE_FAIL(l, "\"%.*s\": this is INI: write =", shown(l->n_bytes), l->s);
    if (!equals)
        LINE_FAIL(l, "\"%.*s\" has no =; a line is key = value, [section], or a comment behind #",
                  shown(l->n_bytes), l->s);
    const char *key = l->s, *lower = NULL, *value = NULL;
    size_t n_key = (size_t)(equals - l->s);
    trim(&key, &n_key);
    TRY(scan_key(l, key, n_key, &lower, out->arena));
    if (!section)
        LINE_FAIL(l, "%s stands before the first [section]", lower);
    for (int i = first; i < out->n_entries; i++)
        if (strcmp(out->entries[i].key, lower) == 0)
            LINE_FAIL(l, "%s stands twice in [%s], first in line %d", lower, section,
                      out->entries[i].line);
    const char *rest = equals + 1;
    TRY(scan_value(l, lower, rest, l->n_bytes - (size_t)(rest - l->s), &value, out->arena));
    scan_add_entry(
        out,
        (struct scan_entry){
            .section = section, .key = lower, .value = value, .file = l->file, .line = l->number});
    return ERR_OK;
}

int scan_text(const char *file, const char *text, size_t n_bytes, struct arena *a, struct scan *out,
              struct text *clean)
{
    *out = (struct scan){.arena = a};
    TRY(check_start(file, text, n_bytes));
    const char *section = NULL;
    int first = 0;
    struct line l = {.file = file};
    for (size_t at = 0; at < n_bytes;) {
        const char *newline = memchr(text + at, '\n', n_bytes - at);
        size_t n = newline ? (size_t)(newline - text) - at : n_bytes - at;
        l.s = text + at;
        l.n_bytes = n;
        l.number++;
        at += n + 1;
        if (l.n_bytes > 0 && l.s[l.n_bytes - 1] == '\r')
            l.n_bytes--;
        if (l.n_bytes > SCAN_LINE_MAX)
            LINE_FAIL(&l, "a line of %zu bytes; at most %d", l.n_bytes, SCAN_LINE_MAX);
        trim(&l.s, &l.n_bytes);
        TRY(check_bytes(&l));
        if (l.n_bytes > 0 && *l.s == '[') {
            TRY(scan_header(&l, out, &section));
            first = out->n_entries;
            if (clean)
                text_printf(clean, "[%s]\n", section);
            continue;
        }
        if (l.n_bytes > 0 && *l.s != ';' && *l.s != '#')
            TRY(scan_entry_line(&l, section, first, out));
        if (clean)
            text_printf(clean, "%.*s\n", (int)l.n_bytes, l.s);
    }
    if (out->n_sections == 0)
        FAIL(ERR_USAGE, "%s: no sections; a job has at least [model] and [data]", file);
    return ERR_OK;
}
