/* The alphabet of a job file: names, UTF-8, how a value is written, growing lists. */
#include "job/scan.h"

#include "base/text.h"
#include <string.h>

/* Twice the room, copied, when a list of n is full. */
static void *grow(struct arena *a, const void *list, int n, int *cap, size_t n_item_bytes)
{
    *cap = *cap ? *cap * 2 : 32;
    void *more = arena_alloc(a, (size_t)*cap * n_item_bytes);
    if (n > 0)
        memcpy(more, list, (size_t)n * n_item_bytes);
    return more;
}

void scan_add_section(struct scan *s, struct scan_section section)
{
    if (s->n_sections == s->cap_sections)
        s->sections =
            grow(s->arena, s->sections, s->n_sections, &s->cap_sections, sizeof *s->sections);
    s->sections[s->n_sections++] = section;
}

void scan_add_entry(struct scan *s, struct scan_entry entry)
{
    if (s->n_entries == s->cap_entries)
        s->entries = grow(s->arena, s->entries, s->n_entries, &s->cap_entries, sizeof *s->entries);
    s->entries[s->n_entries++] = entry;
}

const char *scan_name(const char *s, size_t n_bytes, struct arena *a, const char **why)
{
    if (memchr(s, ':', n_bytes)) {
        *why = "a : in a name; parts are joined with dots";
        return NULL;
    }
    if (n_bytes > SCAN_NAME_MAX) {
        *why = "a name has at most 90 bytes";
        return NULL;
    }
    char *name = arena_strndup(a, s, n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        char c = name[i];
        if (c >= 'A' && c <= 'Z')
            name[i] = (char)(c - 'A' + 'a');
        else if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
                   c == '.')) {
            *why = "a name is made of letters, digits, _, - and dots";
            return NULL;
        }
        if (c == '.' && (i == 0 || i + 1 == n_bytes || name[i + 1] == '.')) {
            *why = "an empty part before or behind a dot";
            return NULL;
        }
    }
    return name;
}

/* Bytes of the UTF-8 character that begins at p, 0 if it is none.  n_left > 0. */
static size_t utf8_length(const unsigned char *p, size_t n_left)
{
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n > n_left)
        return 0;
    /* the first continuation byte excludes long forms, surrogates and what lies past U+10FFFF */
    unsigned low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if (p[i] < 0x80 || p[i] > 0xBF)
            return 0;
    return n;
}

bool scan_is_utf8(const char *s, size_t n_bytes, size_t *at)
{
    for (size_t i = 0; i < n_bytes;) {
        size_t n = utf8_length((const unsigned char *)s + i, n_bytes - i);
        if (n == 0) {
            *at = i;
            return false;
        }
        i += n;
    }
    return true;
}

/* The quote to write value in: 0 for none, -1 where no way of writing reads back. */
static int quote_for(const char *value)
{
    size_t n = strlen(value);
    bool blank_end = n > 0 && (strchr(" \t", value[0]) || strchr(" \t", value[n - 1]));
    bool plain = n > 0 && !blank_end && !strpbrk(value, ";#") && value[0] != '"' &&
                 value[0] != '\'' && value[n - 1] != '\\';
    if (plain)
        return 0;
    if (strchr(value, '\\'))
        return -1;
    if (!strchr(value, '"'))
        return '"';
    return strchr(value, '\'') ? -1 : '\'';
}

const char *scan_write_entry(struct text *out, const char *key, const char *value)
{
    size_t n = strlen(value), at;
    for (const char *c = value; *c; c++)
        if (((unsigned char)*c < 32 && *c != '\t') || *c == 127)
            return "the value holds a line break or another control character";
    if (!scan_is_utf8(value, n, &at))
        return "the value is not UTF-8";
    int quote = quote_for(value);
    if (quote < 0)
        return "no quotes fit around the value: it holds \\, or both \" and ', beside what needs "
               "quotes";
    for (const char *c = value; *c; c++)
        n += *c == '$';
    if (n > SCAN_VALUE_MAX)
        return "the value has more than 900 bytes (a dollar sign counts twice)";
    const char mark = (char)quote;
    text_printf(out, "%s = ", key);
    text_add(out, &mark, quote != 0);
    for (const char *c = value; *c; c++)
        text_add(out, *c == '$' ? "$$" : c, *c == '$' ? 2 : 1);
    text_add(out, &mark, quote != 0);
    text_add(out, "\n", 1);
    return NULL;
}
