/* Vocabularies of bytes and of characters, and text to ids and back. */
#include "data/vocab.h"

#include "data/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_POINTS = 0x110000 };

const struct vocab *vocab_bytes(void)
{
    static const struct vocab bytes = {.kind = VOCAB_BYTES, .n_ids = 256};
    return &bytes;
}

const char *vocab_kind_name(enum vocab_kind kind)
{
    return kind == VOCAB_BYTES ? "bytes" : "chars";
}

struct place {
    int64_t line, column; /* from 1; a column is a character */
};

/* Where byte at stands; everything before it is valid. */
static struct place place_of(const char *text, size_t at)
{
    struct place p = {1, 1};
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n')
            p = (struct place){p.line + 1, 1};
        else if (((unsigned char)text[i] & 0xC0) != 0x80)
            p.column++;
    }
    return p;
}

static int bad_utf8(const char *text, size_t at)
{
    FAIL(ERR_DATA,
         "byte %zu (line %lld) is 0x%02x, which is not valid UTF-8 there; tokenizer = "
         "bytes reads any file",
         at, (long long)place_of(text, at).line, (unsigned char)text[at]);
}

int vocab_from_text(const char *text, size_t n_bytes, struct arena *a, const struct vocab **out)
{
    bool *seen = calloc(CODE_POINTS, sizeof *seen);
    if (!seen)
        FAIL(ERR_RESOURCE, "no memory for a table of characters");
    int rc = n_bytes ? ERR_OK : err_set(ERR_DATA, "an empty text has no characters");
    int n = 0;
    for (size_t at = 0; rc == ERR_OK && at < n_bytes;) {
        int32_t c = utf8_next(text, n_bytes, &at);
        if (c < 0) {
            rc = bad_utf8(text, at);
        } else if (!seen[c]) {
            seen[c] = true;
            n++;
        }
    }
    if (rc == ERR_OK) {
        struct vocab *v = arena_alloc(a, sizeof *v);
        uint32_t *points = arena_alloc(a, (size_t)n * sizeof *points);
        *v = (struct vocab){.kind = VOCAB_CHARS, .n_ids = n, .code_point = points};
        for (uint32_t c = 0; c < CODE_POINTS; c++)
            if (seen[c])
                *points++ = c;
        *out = v;
    }
    free(seen);
    return rc;
}

/* The id of a code point, or -1. */
static int32_t find(const struct vocab *v, uint32_t c)
{
    int low = 0, high = v->n_ids;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (v->code_point[mid] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < v->n_ids && v->code_point[low] == c ? low : -1;
}

static int unknown_char(const struct vocab *v, const char *text, size_t at, uint32_t c)
{
    struct place p = place_of(text, at);
    char shown[5] = "";
    if (c >= 0xA0 || (c >= 32 && c < 127))
        utf8_put(c, shown);
    FAIL(ERR_DATA,
         "line %lld, character %lld: '%s' (U+%04X) is none of the %d characters of the "
         "vocabulary",
         (long long)p.line, (long long)p.column, shown, c, v->n_ids);
}

static void put_id(struct vocab_ids *p, int32_t id)
{
    int64_t i = p->n_ids++;
    if (p->width == 1)
        ((uint8_t *)p->ids)[i] = (uint8_t)id;
    else if (p->width == 2)
        ((uint16_t *)p->ids)[i] = (uint16_t)id;
    else
        ((int32_t *)p->ids)[i] = id;
}

static int encode_chars(const struct vocab *v, const char *text, size_t n_bytes,
                        struct vocab_ids *out)
{
    int32_t ascii[128]; /* nearly every character of nearly every file */
    for (uint32_t c = 0; c < 128; c++)
        ascii[c] = find(v, c);
    for (size_t at = 0; at < n_bytes;) {
        size_t begin = at;
        int32_t c = utf8_next(text, n_bytes, &at);
        if (c < 0)
            return bad_utf8(text, at);
        int32_t id = c < 128 ? ascii[c] : find(v, (uint32_t)c);
        if (id < 0)
            return unknown_char(v, text, begin, (uint32_t)c);
        put_id(out, id);
    }
    return ERR_OK;
}

static int encode(const struct vocab *v, const char *text, size_t n_bytes, int width,
                  struct vocab_ids *out)
{
    size_t n = n_bytes;
    if (v->kind == VOCAB_CHARS) { /* characters, or more where the text is not valid */
        n = 0;
        for (size_t i = 0; i < n_bytes; i++)
            n += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    size_t room = n ? n : 1;
    *out = (struct vocab_ids){.width = width};
    out->ids = room > SIZE_MAX / (size_t)width ? NULL : malloc(room * (size_t)width);
    if (!out->ids)
        FAIL(ERR_RESOURCE, "no memory for the ids of %zu tokens", n);
    int rc = ERR_OK;
    if (v->kind == VOCAB_BYTES)
        for (size_t i = 0; i < n_bytes; i++)
            put_id(out, (unsigned char)text[i]);
    else
        rc = encode_chars(v, text, n_bytes, out);
    if (rc != ERR_OK) {
        free(out->ids);
        *out = (struct vocab_ids){0};
    }
    return rc;
}

int vocab_encode(const struct vocab *v, const char *text, size_t n_bytes, int32_t **ids,
                 int64_t *n_ids)
{
    struct vocab_ids p;
    TRY(encode(v, text, n_bytes, 4, &p));
    *ids = p.ids;
    *n_ids = p.n_ids;
    return ERR_OK;
}

int vocab_encode_packed(const struct vocab *v, const char *text, size_t n_bytes,
                        struct vocab_ids *out)
{
    return encode(v, text, n_bytes, v->n_ids <= 256 ? 1 : v->n_ids <= 65536 ? 2 : 4, out);
}

void vocab_decode(const struct vocab *v, int32_t id, struct text *out)
{
    REQUIRE(id >= 0 && id < v->n_ids);
    char c[5] = {(char)id};
    int n = v->kind == VOCAB_BYTES ? 1 : utf8_put(v->code_point[id], c);
    text_add(out, c, (size_t)n);
}

void vocab_to_json(const struct vocab *v, struct text *out)
{
    text_printf(out, "{\"kind\": \"%s\"", vocab_kind_name(v->kind));
    if (v->kind == VOCAB_CHARS) {
        text_printf(out, ", \"code_points\": [");
        for (int i = 0; i < v->n_ids; i++)
            text_printf(out, "%s%u", i ? "," : "", v->code_point[i]);
        text_printf(out, "]");
    }
    text_printf(out, "}");
}

int vocab_from_json(const struct json *j, struct arena *a, const struct vocab **out)
{
    const char *kind;
    TRY(json_get_string(j, "kind", &kind));
    if (strcmp(kind, "bytes") == 0) {
        *out = vocab_bytes();
        return ERR_OK;
    }
    if (strcmp(kind, "chars") != 0)
        FAIL(ERR_DATA, "vocabulary of kind \"%s\": it must be bytes or chars", kind);
    const struct json *list = json_get(j, "code_points");
    if (!list || list->type != JSON_ARRAY || list->n_children < 1)
        FAIL(ERR_DATA, "vocabulary of characters without code_points");
    struct vocab *v = arena_alloc(a, sizeof *v);
    uint32_t *points = arena_alloc(a, (size_t)list->n_children * sizeof *points);
    *v = (struct vocab){.kind = VOCAB_CHARS, .n_ids = list->n_children, .code_point = points};
    int64_t before = -1;
    int i = 0;
    for (const struct json *e = list->child; e; e = e->next, i++) {
        int64_t c;
        TRY(json_as_i64(e, &c));
        if (c <= before || c >= CODE_POINTS || (c >= 0xD800 && c < 0xE000))
            FAIL(ERR_DATA, "vocabulary: code point %lld is no character, or not in ascending order",
                 (long long)c);
        points[i] = (uint32_t)c;
        before = c;
    }
    *out = v;
    return ERR_OK;
}
