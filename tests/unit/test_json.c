/* The JSON reader: RFC 8259's cases, and everything that has to be refused. */
/* RUN: -n 1 */
#include "base/json.h"
#include "check.h"
#include <stdlib.h>

/* Parse from an exact heap copy, so that a sanitizer sees a read beyond the end. */
static int parse_n(const char *s, size_t n, struct arena *a, const struct json **out)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, s, n);
    int rc = json_parse(copy, n, a, out);
    free(copy);
    return rc;
}

static int parse(const char *s, struct arena *a, const struct json **out)
{
    return parse_n(s, strlen(s), a, out);
}

static bool refused(const char *s, struct arena *a)
{
    const struct json *j;
    return parse(s, a, &j) == ERR_DATA;
}

static void test_values(struct arena *a)
{
    const struct json *j = NULL;
    int64_t i;
    double f;
    const char *s;
    TEST ("values of every type, and the order of members") {
        CHECK(parse(" {\"a\": [1, -2.5e3, true,false ,null],\t\"b\":{} , \"\": \"x\"}\r\n", a,
                    &j) == ERR_OK);
        CHECK(j->type == JSON_OBJECT && j->n_children == 3 && !j->key);
        const struct json *l = json_get(j, "a");
        CHECK(l && l->type == JSON_ARRAY && l->n_children == 5);
        CHECK(json_as_i64(json_at(l, 0), &i) == ERR_OK && i == 1);
        CHECK(json_as_f64(json_at(l, 1), &f) == ERR_OK && f == -2500.0);
        CHECK_STR(json_at(l, 1)->text, "-2.5e3");
        CHECK(json_at(l, 2)->type == JSON_TRUE && json_at(l, 3)->type == JSON_FALSE);
        CHECK(json_at(l, 4)->type == JSON_NULL && !json_at(l, 5) && !json_at(l, -1));
        CHECK(json_get(j, "b")->type == JSON_OBJECT && json_get(j, "b")->n_children == 0);
        CHECK(json_get_string(j, "", &s) == ERR_OK);
        CHECK_STR(s, "x");
        CHECK_STR(j->child->next->key, "b");
        CHECK(!json_get(j, "c") && !json_get(l, "a") && !json_at(j, 0));
    }
    TEST ("a lone scalar is a document") {
        CHECK(parse("0", a, &j) == ERR_OK && j->type == JSON_NUMBER);
        CHECK(parse("\"\"", a, &j) == ERR_OK && j->type == JSON_STRING && j->text[0] == 0);
        CHECK(parse(" null ", a, &j) == ERR_OK && j->type == JSON_NULL);
        CHECK(parse("[]", a, &j) == ERR_OK && j->n_children == 0 && !j->child);
    }
    TEST ("numbers packed without blanks keep their own texts") {
        CHECK(parse("[1,22,333,\"4\",5]", a, &j) == ERR_OK);
        CHECK_STR(json_at(j, 0)->text, "1");
        CHECK_STR(json_at(j, 1)->text, "22");
        CHECK_STR(json_at(j, 2)->text, "333");
        CHECK_STR(json_at(j, 3)->text, "4");
        CHECK_STR(json_at(j, 4)->text, "5");
    }
}

static void test_numbers(struct arena *a)
{
    const struct json *j = NULL;
    int64_t i = 0;
    double f = 0;
    TEST ("64-bit integers are exact, and nothing beyond them") {
        CHECK(parse("{\"n\": 9223372036854775807}", a, &j) == ERR_OK);
        CHECK(json_get_i64(j, "n", &i) == ERR_OK && i == INT64_MAX);
        CHECK(parse("{\"n\": -9223372036854775808}", a, &j) == ERR_OK);
        CHECK(json_get_i64(j, "n", &i) == ERR_OK && i == INT64_MIN);
        CHECK(parse("{\"n\": 9223372036854775808}", a, &j) == ERR_OK);
        CHECK(json_get_i64(j, "n", &i) == ERR_DATA);
        CHECK_HAS(err_text(), "n = 9223372036854775808");
        CHECK(parse("{\"n\": 1.0}", a, &j) == ERR_OK && json_get_i64(j, "n", &i) == ERR_DATA);
        CHECK(parse("{\"n\": 1e3}", a, &j) == ERR_OK && json_get_i64(j, "n", &i) == ERR_DATA);
    }
    TEST ("doubles come back to the last bit; overflow is refused") {
        CHECK(parse("{\"x\": 0.10000000000000001, \"y\": 1E400, \"z\": 5e-324}", a, &j) == ERR_OK);
        CHECK(json_get_f64(j, "x", &f) == ERR_OK && f == 0.1);
        CHECK(json_get_f64(j, "z", &f) == ERR_OK && f > 0 && f < 1e-323);
        CHECK(json_get_f64(j, "y", &f) == ERR_DATA);
        CHECK_HAS(err_text(), "y");
    }
    TEST ("missing members and wrong types are named") {
        const char *s;
        CHECK(parse("{\"x\": \"1\", \"n\": 1}", a, &j) == ERR_OK);
        CHECK(json_get_i64(j, "gone", &i) == ERR_DATA);
        CHECK_HAS(err_text(), "gone");
        CHECK(json_get_i64(j, "x", &i) == ERR_DATA);
        CHECK_HAS(err_text(), "x");
        CHECK(json_get_f64(j, "x", &f) == ERR_DATA);
        CHECK(json_get_string(j, "n", &s) == ERR_DATA);
        CHECK_HAS(err_text(), "\"n\" is not a string");
    }
    TEST ("malformed numbers are refused") {
        static const char *const bad[] = {"01",       "-01",       "+1",  "-",    ".5",    "1.",
                                          "1.e3",     "1e",        "1e+", "0x10", "1_000", "NaN",
                                          "Infinity", "-Infinity", "1 2", "--1",  "00"};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            check_that(refused(bad[k], a), __FILE__, __LINE__, "accepted: %s", bad[k]);
        CHECK(parse("-0", a, &j) == ERR_OK && json_as_i64(j, &i) == ERR_OK && i == 0);
        CHECK(parse("0.0e-0", a, &j) == ERR_OK && json_as_f64(j, &f) == ERR_OK && f == 0.0);
    }
}

static void test_strings(struct arena *a)
{
    const struct json *j = NULL;
    TEST ("escapes and UTF-8") {
        CHECK(parse("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"", a, &j) ==
              ERR_OK);
        CHECK_STR(j->text, "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
        CHECK(parse("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"", a, &j) == ERR_OK);
        CHECK_STR(j->text, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f");
        CHECK(parse("{\"\\u0061\": 1}", a, &j) == ERR_OK && json_get(j, "a"));
        CHECK(parse("\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xe0\xa0\x80\xf0\x90\x80\x80\"", a,
                    &j) == ERR_OK);
    }
    TEST ("invalid UTF-8 is refused") {
        static const char *const bad[] = {
            "\"\x80\"",
            "\"\xc0\xaf\"",
            "\"\xc1\xbf\"",
            "\"\xe0\x9f\xbf\"",
            "\"\xed\xa0\x80\"",
            "\"\xf0\x8f\xbf\xbf\"",
            "\"\xf4\x90\x80\x80\"",
            "\"\xf5\x80\x80\x80\"",
            "\"\xff\"",
            "\"\xc3\"",
            "\"\xe2\x82\"",
            "\"\xc3",
            "\"\xf0\x9f\x98",
            "\xef\xbb\xbf{}",
            "\xc3\xa9",
        };
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            check_that(refused(bad[k], a), __FILE__, __LINE__, "accepted: case %zu", k);
    }
    TEST ("control characters, NUL, broken escapes and lone surrogates are refused") {
        static const char *const bad[] = {"\"a\nb\"",
                                          "\"\t\"",
                                          "\"\x01\"",
                                          "\"\\x41\"",
                                          "\"\\u12\"",
                                          "\"\\u12g4\"",
                                          "\"\\u0000\"",
                                          "\"\\ud800\"",
                                          "\"\\udc00\"",
                                          "\"\\ud800\\n\"",
                                          "\"\\ud800\\u0041\"",
                                          "\"\\ud83d\\ud83d\"",
                                          "\"\\",
                                          "\"\\\"",
                                          "\"abc",
                                          "'a'",
                                          "\"\\a\"",
                                          "\"\\u",
                                          "\"\\ud800\\u"};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            check_that(refused(bad[k], a), __FILE__, __LINE__, "accepted: case %zu", k);
        CHECK(parse_n("\"a\0b\"", 5, a, &j) == ERR_DATA);
        CHECK(parse_n("\"a\\\0\"", 5, a, &j) == ERR_DATA);
        CHECK(parse_n("{}\0", 3, a, &j) == ERR_DATA);
    }
}

static void test_structure(struct arena *a)
{
    const struct json *j = NULL;
    TEST ("malformed structure is refused, and the byte is named") {
        static const char *const bad[] = {"",          " ",
                                          "[",         "]",
                                          "{",         "}",
                                          "[1,]",      "[,1]",
                                          "[1 2]",     "{,}",
                                          "{\"a\"}",   "{\"a\":}",
                                          "{a:1}",     "{\"a\":1,}",
                                          "{1:2}",     "[1}",
                                          "{\"a\":1]", "{} {}",
                                          "[] x",      "nul",
                                          "nulll",     "True",
                                          "tru",       "[1,,2]",
                                          "{\"a\" 1}", "{\"a\":1 \"b\":2}",
                                          "/**/1",     "1//",
                                          "[1]\v",     "\f1"};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
            check_that(refused(bad[k], a), __FILE__, __LINE__, "accepted: %s", bad[k]);
        CHECK(refused("[1, 2, x]", a));
        CHECK_HAS(err_text(), "byte 7: 'x'");
    }
    TEST ("a name that stands twice is refused, in small and in large objects") {
        CHECK(refused("{\"a\": 1, \"b\": 2, \"a\": 3}", a));
        CHECK_HAS(err_text(), "\"a\" stands twice");
        CHECK(refused("{\"a\": 1, \"\\u0061\": 3}", a));
        CHECK(parse("[{\"a\": 1}, {\"a\": {\"a\": 2}}]", a, &j) == ERR_OK);
        enum { MANY = 20000 };
        char *s = malloc(MANY * 16);
        for (int twice = 0; twice < 2; twice++) {
            size_t at = 1;
            s[0] = '{';
            for (int k = 0; k < MANY; k++)
                at += (size_t)sprintf(s + at, "\"k%d\":%d,", twice && k == MANY - 1 ? 77 : k, k);
            s[at - 1] = '}';
            CHECK(parse_n(s, at, a, &j) == (twice ? ERR_DATA : ERR_OK));
            CHECK(twice || j->n_children == MANY);
        }
        free(s);
    }
    TEST ("64 levels are read, 65 are refused; siblings do not add up") {
        char deep[2 * 65 + 1];
        for (int n = 64; n <= 65; n++) {
            memset(deep, '[', (size_t)n);
            memset(deep + n, ']', (size_t)n);
            CHECK(parse_n(deep, 2 * (size_t)n, a, &j) == (n == 64 ? ERR_OK : ERR_DATA));
        }
        CHECK_HAS(err_text(), "nested deeper than 64");
        char *flood = malloc(1000000);
        memset(flood, '[', 1000000);
        CHECK(parse_n(flood, 1000000, a, &j) == ERR_DATA);
        for (int k = 0; k < 1000; k++)
            memcpy(flood + 1 + 3 * k, "[],", 3);
        flood[3000] = ']';
        CHECK(parse_n(flood, 3001, a, &j) == ERR_OK && j->n_children == 1000);
        free(flood);
    }
}

static void test_damage(struct arena *a)
{
    static const char doc[] = "{\"a\": [1, -2.5e+3, true, false, null, \"\\u00e9\\ud83d\\ude00 "
                              "\xe2\x82\xac\"], \"b\": {\"c\": {}, \"d\": [[], [0]]}}";
    const struct json *j = NULL;
    TEST ("every prefix of a document is refused") {
        for (size_t n = 0; n < sizeof doc - 1; n++)
            check_that(parse_n(doc, n, a, &j) == ERR_DATA, __FILE__, __LINE__, "%zu bytes", n);
        CHECK(parse_n(doc, sizeof doc - 1, a, &j) == ERR_OK);
    }
    TEST ("any byte replaced by any other: read or refused, never a crash") {
        char bad[sizeof doc];
        int n_read = 0, n_refused = 0;
        for (size_t i = 0; i < sizeof doc - 1; i++) {
            for (int v = 0; v < 256; v++) {
                memcpy(bad, doc, sizeof doc);
                bad[i] = (char)v;
                struct arena *own = arena_create();
                *(parse_n(bad, sizeof doc - 1, own, &j) == ERR_OK ? &n_read : &n_refused) += 1;
                arena_destroy(&own);
            }
        }
        CHECK(n_read > 100 && n_refused > 10000);
    }
}

int main(void)
{
    struct arena *a = arena_create();
    test_values(a);
    test_numbers(a);
    test_strings(a);
    test_structure(a);
    test_damage(a);
    arena_destroy(&a);
    return check_done();
}
