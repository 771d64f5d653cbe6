/* A recursive-descent reader of RFC 8259.  One copy of the document is kept: every string and
 * number is decoded into the place where it stood, so that a node is all that it costs. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { JSON_MAX_DEPTH = 64, FEW_MEMBERS = 16 };

struct reader {
    const unsigned char *in; /* borrowed */
    size_t n_bytes;
    size_t at;
    char *copy; /* in the arena; n_bytes + 1 long */
    struct arena *arena;
    int depth;
};

static int read_value(struct reader *r, struct json *out);

/* The byte at hand, or -1 at the end. */
static int peek(const struct reader *r)
{
    return r->at < r->n_bytes ? r->in[r->at] : -1;
}

static void skip_blanks(struct reader *r)
{
    for (int c; (c = peek(r)) == ' ' || c == '\t' || c == '\n' || c == '\r';)
        r->at++;
}

static int refuse(const struct reader *r, const char *what)
{
    int c = peek(r);
    if (c < 0)
        FAIL(ERR_DATA, "JSON, byte %zu: the text ends, %s", r->at, what);
    if (c > 32 && c < 127)
        FAIL(ERR_DATA, "JSON, byte %zu: '%c', %s", r->at, c, what);
    FAIL(ERR_DATA, "JSON, byte %zu: 0x%02x, %s", r->at, (unsigned)c, what);
}

static int hex4(struct reader *r, unsigned *v)
{
    *v = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int c = peek(r);
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (unsigned)(c - 'A') + 10;
        else
            return refuse(r, "where \\u wants four hexadecimal digits");
        *v = *v * 16 + digit;
    }
    return ERR_OK;
}

/* Encode a code point as UTF-8: never longer than the escape it comes from. */
static size_t put_utf8(char *to, unsigned v)
{
    if (v < 0x80) {
        to[0] = (char)v;
        return 1;
    }
    if (v < 0x800) {
        to[0] = (char)(0xC0 | v >> 6);
        to[1] = (char)(0x80 | (v & 63));
        return 2;
    }
    if (v < 0x10000) {
        to[0] = (char)(0xE0 | v >> 12);
        to[1] = (char)(0x80 | (v >> 6 & 63));
        to[2] = (char)(0x80 | (v & 63));
        return 3;
    }
    to[0] = (char)(0xF0 | v >> 18);
    to[1] = (char)(0x80 | (v >> 12 & 63));
    to[2] = (char)(0x80 | (v >> 6 & 63));
    to[3] = (char)(0x80 | (v & 63));
    return 4;
}

/* Behind "\u". */
static int read_unicode(struct reader *r, char *to, size_t *n)
{
    unsigned v, low;
    TRY(hex4(r, &v));
    if (v == 0)
        return refuse(r, "behind \\u0000, which a text cannot hold");
    if (v >= 0xDC00 && v <= 0xDFFF)
        return refuse(r, "behind a low surrogate that stands alone");
    if (v >= 0xD800 && v <= 0xDBFF) {
        if (peek(r) != '\\' || r->at + 1 >= r->n_bytes || r->in[r->at + 1] != 'u')
            return refuse(r, "behind a high surrogate that stands alone");
        r->at += 2;
        TRY(hex4(r, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return refuse(r, "behind a high surrogate without its low one");
        v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
    }
    *n = put_utf8(to, v);
    return ERR_OK;
}

/* Behind "\". */
static int read_escape(struct reader *r, char *to, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    int c = peek(r);
    const char *hit = c > 0 ? strchr(from, c) : NULL;
    if (c != 'u' && !hit)
        return refuse(r, "which is no escape");
    r->at++;
    if (c == 'u')
        return read_unicode(r, to, n);
    *to = means[hit - from];
    *n = 1;
    return ERR_OK;
}

/* One character beyond ASCII, copied: shortest form only, no surrogates, at most U+10FFFF. */
static int read_utf8(struct reader *r, char *to, size_t *n)
{
    const unsigned char *p = r->in + r->at;
    size_t left = r->n_bytes - r->at;
    size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return refuse(r, "which begins no UTF-8 character");
    unsigned low = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < len; i++, low = 0x80, high = 0xBF)
        if (i >= left || p[i] < low || p[i] > high)
            return refuse(r, "where a UTF-8 character is broken");
    memcpy(to, p, len);
    r->at += len;
    *n = len;
    return ERR_OK;
}

/* At the opening quote. */
static int read_string(struct reader *r, const char **out)
{
    char *to = r->copy + r->at;
    *out = to;
    r->at++;
    for (;;) {
        size_t n = 1;
        int c = peek(r);
        if (c == '"')
            break;
        if (c < 32)
            return refuse(r, "inside a string");
        if (c == '\\') {
            r->at++;
            TRY(read_escape(r, to, &n));
        } else if (c >= 0x80) {
            TRY(read_utf8(r, to, &n));
        } else {
            *to = (char)c;
            r->at++;
        }
        to += n;
    }
    *to = 0;
    r->at++;
    return ERR_OK;
}

static int read_digits(struct reader *r)
{
    int c = peek(r);
    if (c < '0' || c > '9')
        return refuse(r, "where a number wants a digit");
    while ((c = peek(r)) >= '0' && c <= '9')
        r->at++;
    return ERR_OK;
}

static int read_number(struct reader *r, const char **out)
{
    size_t begin = r->at;
    if (peek(r) == '-')
        r->at++;
    bool zero = peek(r) == '0';
    size_t first = r->at;
    TRY(read_digits(r));
    if (zero && r->at != first + 1)
        FAIL(ERR_DATA, "JSON, byte %zu: a number with a leading zero", first);
    if (peek(r) == '.') {
        r->at++;
        TRY(read_digits(r));
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        r->at++;
        if (peek(r) == '+' || peek(r) == '-')
            r->at++;
        TRY(read_digits(r));
    }
    memcpy(r->copy + begin, r->in + begin, r->at - begin);
    r->copy[r->at] = 0; /* where a comma, bracket, blank or the end stands: never a text's place */
    *out = r->copy + begin;
    return ERR_OK;
}

static int read_word(struct reader *r, const char *word)
{
    for (const char *w = word; *w; w++, r->at++)
        if (peek(r) != *w)
            return refuse(r, "where only null, false or true could go on");
    return ERR_OK;
}

static int by_key(const void *a, const void *b)
{
    const struct json *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

/* A vocabulary is one object with 50,000 members: sort, and compare neighbours. */
static int check_keys(const struct reader *r, const struct json *object)
{
    const struct json *few[FEW_MEMBERS];
    size_t n = 0, n_members = (size_t)object->n_children;
    const struct json **sorted = n_members <= FEW_MEMBERS ? few : calloc(n_members, sizeof(void *));
    if (!sorted)
        FAIL(ERR_RESOURCE, "no memory for the names of %zu JSON members", n_members);
    for (const struct json *m = object->child; m; m = m->next)
        sorted[n++] = m;
    qsort(sorted, n, sizeof(void *), by_key);
    int rc = ERR_OK;
    for (size_t i = 1; i < n && rc == ERR_OK; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            rc = err_set(ERR_DATA,
                         "JSON: the name \"%.200s\" stands twice in the object that ends "
                         "at byte %zu",
                         sorted[i]->key, r->at);
    if (sorted != few)
        free(sorted);
    return rc;
}

static int read_member_key(struct reader *r, const char **key)
{
    if (peek(r) != '"')
        return refuse(r, "where an object wants a name in quotes");
    TRY(read_string(r, key));
    skip_blanks(r);
    if (peek(r) != ':')
        return refuse(r, "where ':' has to stand");
    r->at++;
    skip_blanks(r);
    return ERR_OK;
}

/* The inside of an array or object, up to its closing bracket. */
static int read_children(struct reader *r, struct json *out, int close)
{
    struct json *last = NULL;
    r->at++;
    if (++r->depth > JSON_MAX_DEPTH)
        FAIL(ERR_DATA, "JSON, byte %zu: nested deeper than %d", r->at - 1, JSON_MAX_DEPTH);
    skip_blanks(r);
    bool more = peek(r) != close;
    while (more) {
        struct json *j = arena_alloc(r->arena, sizeof *j);
        if (out->type == JSON_OBJECT)
            TRY(read_member_key(r, &j->key));
        TRY(read_value(r, j));
        if (last)
            last->next = j;
        else
            out->child = j;
        last = j;
        out->n_children++;
        skip_blanks(r);
        more = peek(r) == ',';
        if (!more && peek(r) != close)
            return refuse(r, close == ']' ? "where ',' or ']' has to stand"
                                          : "where ',' or '}' has to stand");
        if (more) {
            r->at++;
            skip_blanks(r);
        }
    }
    r->at++;
    r->depth--;
    return out->type == JSON_OBJECT ? check_keys(r, out) : ERR_OK;
}

static int read_value(struct reader *r, struct json *out)
{
    switch (peek(r)) {
    case '{':
        out->type = JSON_OBJECT;
        return read_children(r, out, '}');
    case '[':
        out->type = JSON_ARRAY;
        return read_children(r, out, ']');
    case '"':
        out->type = JSON_STRING;
        return read_string(r, &out->text);
    case 'n':
        out->type = JSON_NULL;
        return read_word(r, "null");
    case 'f':
        out->type = JSON_FALSE;
        return read_word(r, "false");
    case 't':
        out->type = JSON_TRUE;
        return read_word(r, "true");
    }
    int c = peek(r);
    if (c != '-' && (c < '0' || c > '9'))
        return refuse(r, "where a value has to stand");
    out->type = JSON_NUMBER;
    return read_number(r, &out->text);
}

int json_parse(const char *bytes, size_t n_bytes, struct arena *a, const struct json **out)
{
    struct reader r = {.in = (const unsigned char *)bytes, .n_bytes = n_bytes, .arena = a};
    struct json *root = arena_alloc(a, sizeof *root);
    r.copy = arena_alloc(a, n_bytes + 1);
    skip_blanks(&r);
    TRY(read_value(&r, root));
    skip_blanks(&r);
    if (r.at != n_bytes)
        return refuse(&r, "behind the end of the value");
    *out = root;
    return ERR_OK;
}
