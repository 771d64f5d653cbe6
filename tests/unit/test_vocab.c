/* Bytes and characters to ids and back, every Unicode character, and text that is none.
 * RUN: -n 1 */
#include "data/vocab.h"

#include "check.h"
#include "data/utf8.h"

#include <stdlib.h>

static char *decode_all(const struct vocab *v, const int32_t *ids, int64_t n)
{
    struct text t = {0};
    for (int64_t i = 0; i < n; i++)
        vocab_decode(v, ids[i], &t);
    return t.s;
}

/* The table of RFC 3629, section 3, written out. */
static void put_plain(struct text *t, uint32_t c)
{
    unsigned char b[4];
    size_t n = 0;
    if (c <= 0x7F) {
        b[n++] = (unsigned char)c;
    } else if (c <= 0x7FF) {
        b[n++] = (unsigned char)(192 + c / 64);
        b[n++] = (unsigned char)(128 + c % 64);
    } else if (c <= 0xFFFF) {
        b[n++] = (unsigned char)(224 + c / 4096);
        b[n++] = (unsigned char)(128 + c / 64 % 64);
        b[n++] = (unsigned char)(128 + c % 64);
    } else {
        b[n++] = (unsigned char)(240 + c / 262144);
        b[n++] = (unsigned char)(128 + c / 4096 % 64);
        b[n++] = (unsigned char)(128 + c / 64 % 64);
        b[n++] = (unsigned char)(128 + c % 64);
    }
    text_add(t, b, n);
}

static void add_range(struct text *t, uint32_t first, uint32_t end)
{
    for (uint32_t c = first; c < end; c++)
        put_plain(t, c);
}

static void test_every_character(struct arena *a)
{
    struct text all = {0};
    add_range(&all, 0, 0xD800);
    add_range(&all, 0xE000, 0x110000);
    const struct vocab *v = NULL;
    struct vocab_ids p = {0};
    CHECK(vocab_from_text(all.s, all.n_bytes, a, &v) == ERR_OK);
    CHECK(v && v->n_ids == 0x110000 - 0x800);
    CHECK(v && vocab_encode_packed(v, all.s, all.n_bytes, &p) == ERR_OK);
    CHECK(p.width == 4 && p.n_ids == 0x110000 - 0x800);
    struct text back = {0};
    bool same = true;
    for (int64_t i = 0; i < p.n_ids; i++) {
        same &= vocab_ids_at(&p, i) == i;
        vocab_decode(v, (int32_t)i, &back);
    }
    CHECK(same && back.n_bytes == all.n_bytes && memcmp(back.s, all.s, all.n_bytes) == 0);
    free(p.ids);
    text_clear(&back);
    text_clear(&all);
}

static void check_width(struct arena *a, uint32_t n_chars, int width)
{
    struct text t = {0};
    add_range(&t, 1, n_chars + 1);
    put_plain(&t, 1);
    const struct vocab *v = NULL;
    struct vocab_ids p = {0};
    CHECK(vocab_from_text(t.s, t.n_bytes, a, &v) == ERR_OK && v->n_ids == (int)n_chars);
    CHECK(v && vocab_encode_packed(v, t.s, t.n_bytes, &p) == ERR_OK);
    CHECK(p.width == width && p.n_ids == (int64_t)n_chars + 1);
    for (int64_t i = 0; i < p.n_ids; i++)
        CHECK(vocab_ids_at(&p, i) == i % (int64_t)n_chars);
    free(p.ids);
    text_clear(&t);
}

struct bad_text {
    const char *text, *words;
};

static const struct bad_text bad_utf8[] = {
    {"ab\x80", "byte 2 (line 1) is 0x80"},
    {"a\nb\xC0\x80", "byte 3 (line 2) is 0xc0"},
    {"\xC1\xBF", "byte 0 "},
    {"\xE0\x9F\xBF", "byte 0 "},
    {"\xED\xA0\x80", "byte 0 "},
    {"\xF0\x8F\xBF\xBF", "byte 0 "},
    {"\xF4\x90\x80\x80", "byte 0 (line 1) is 0xf4"},
    {"\xF5\x80\x80\x80", "byte 0 "},
    {"\xFF", "tokenizer = bytes"},
    {"x\xE2\x82", "byte 1 "},
    {"x\xE2\x82x", "byte 1 "},
    {"\xC3", "byte 0 "},
    {"", "empty"},
};

static const struct bad_text bad_json[] = {
    {"{}", "kind"},
    {"{\"kind\": 3}", "kind"},
    {"{\"kind\": \"words\"}", "words"},
    {"{\"kind\": \"chars\"}", "code_points"},
    {"{\"kind\": \"chars\", \"code_points\": []}", "code_points"},
    {"{\"kind\": \"chars\", \"code_points\": 3}", "code_points"},
    {"{\"kind\": \"chars\", \"code_points\": [1, 1]}", "code point 1 "},
    {"{\"kind\": \"chars\", \"code_points\": [2, 1]}", "code point 1 "},
    {"{\"kind\": \"chars\", \"code_points\": [-1]}", "code point -1 "},
    {"{\"kind\": \"chars\", \"code_points\": [55296]}", "code point 55296 "},
    {"{\"kind\": \"chars\", \"code_points\": [1114112]}", "code point 1114112 "},
};

static void check_json(const struct vocab *v, const char *want, struct arena *a)
{
    struct text t = {0};
    const struct json *j = NULL;
    const struct vocab *back = NULL;
    vocab_to_json(v, &t);
    CHECK_STR(t.s, want);
    CHECK(json_parse(t.s, t.n_bytes, a, &j) == ERR_OK);
    CHECK(j && vocab_from_json(j, a, &back) == ERR_OK);
    CHECK(back && back->kind == v->kind && back->n_ids == v->n_ids);
    for (int i = 0; back && v->kind == VOCAB_CHARS && i < v->n_ids; i++)
        CHECK(back->code_point[i] == v->code_point[i]);
    text_clear(&t);
}

static void test_places(struct arena *a)
{
    const struct vocab *v;
    int32_t *ids;
    int64_t n;
    CHECK(vocab_from_text("abc\n", 4, a, &v) == ERR_OK);
    CHECK(vocab_encode(v, "ab\ncaé", 7, &ids, &n) == ERR_DATA);
    CHECK_HAS(err_text(), "line 2, character 3: 'é' (U+00E9)");
    CHECK_HAS(err_text(), "4 characters");
    CHECK(vocab_encode(v, "a\tb", 3, &ids, &n) == ERR_DATA);
    CHECK_HAS(err_text(), "line 1, character 2: '' (U+0009)");
    CHECK(vocab_encode(v, "a\xFF", 2, &ids, &n) == ERR_DATA);
    CHECK_HAS(err_text(), "byte 1 ");
}

int main(void)
{
    struct arena *a = arena_create();
    const struct vocab *v = NULL;
    int32_t *ids = NULL;
    int64_t n = 0;
    TEST ("bytes are their own ids, NUL and invalid UTF-8 too") {
        CHECK(vocab_bytes()->n_ids == 256);
        CHECK(vocab_encode(vocab_bytes(), "a\0\xFFz", 4, &ids, &n) == ERR_OK);
        CHECK(n == 4 && ids[0] == 'a' && ids[1] == 0 && ids[2] == 255 && ids[3] == 'z');
        char *back = decode_all(vocab_bytes(), ids, n);
        CHECK(memcmp(back, "a\0\xFFz", 5) == 0);
        free(back);
        free(ids);
    }
    TEST ("characters are numbered in code point order") {
        const char *s = "né 東\nen"; /* \n blank e n é 東 */
        static const int32_t want[] = {3, 4, 1, 5, 0, 2, 3};
        CHECK(vocab_from_text(s, strlen(s), a, &v) == ERR_OK);
        CHECK(v->n_ids == 6 && v->code_point[5] == 0x6771);
        CHECK(vocab_encode(v, s, strlen(s), &ids, &n) == ERR_OK);
        CHECK(n == 7 && memcmp(ids, want, sizeof want) == 0);
        char *back = decode_all(v, ids, n);
        CHECK_STR(back, s);
        free(back);
        free(ids);
        CHECK(vocab_encode(v, "", 0, &ids, &n) == ERR_OK && n == 0);
        free(ids);
    }
    TEST ("every Unicode character goes there and back")
        test_every_character(a);
    TEST ("ids take no more bytes than they need") {
        check_width(a, 256, 1);
        check_width(a, 257, 2);
        check_width(a, 40000, 2);
    }
    TEST ("what is no UTF-8 is named by its byte")
        for (size_t i = 0; i < sizeof bad_utf8 / sizeof *bad_utf8; i++) {
            const char *s = bad_utf8[i].text;
            CHECK(vocab_from_text(s, strlen(s), a, &v) == ERR_DATA);
            CHECK_HAS(err_text(), bad_utf8[i].words);
        }
    TEST ("an unknown character is named with its place")
        test_places(a);
    TEST ("a vocabulary survives JSON") {
        check_json(vocab_bytes(), "{\"kind\": \"bytes\"}", a);
        CHECK(vocab_from_text("bé\n", 4, a, &v) == ERR_OK);
        check_json(v, "{\"kind\": \"chars\", \"code_points\": [10,98,233]}", a);
    }
    TEST ("JSON that is no vocabulary is refused")
        for (size_t i = 0; i < sizeof bad_json / sizeof *bad_json; i++) {
            const struct json *j = NULL;
            const char *s = bad_json[i].text;
            CHECK(json_parse(s, strlen(s), a, &j) == ERR_OK);
            CHECK(vocab_from_json(j, a, &v) == ERR_DATA);
            CHECK_HAS(err_text(), bad_json[i].words);
        }
    arena_destroy(&a);
    return check_done();
}
