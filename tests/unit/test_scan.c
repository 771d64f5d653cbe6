/* The scan: what a job file may hold, by line, and that iniparser reads the same. */
/* RUN: -n 1 */
#include "job/scan.h"

#include "base/text.h"
#include "check.h"
#include <stdlib.h>

struct bytes {
    const char *s;
    size_t n;
};
#define B(literal)                                                                                 \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

/* Scan an exact heap copy, so that a sanitizer sees a read beyond the end; then iniparser. */
static int scan_bytes(const char *s, size_t n, struct arena *a, struct scan *out)
{
    char *copy = malloc(n ? n : 1);
    memcpy(copy, s, n);
    struct text clean = {0};
    int rc = scan_text("job.ini", copy, n, a, out, &clean);
    if (rc == ERR_OK)
        rc = scan_compare(out, "job.ini", clean.s, clean.n_bytes);
    text_clear(&clean);
    free(copy);
    return rc;
}

static void check_refused(struct arena *a, struct bytes in, const char *message)
{
    struct scan s;
    err_set(ERR_OK, "nothing");
    int rc = scan_bytes(in.s, in.n, a, &s);
    check_that(rc == ERR_USAGE, __FILE__, __LINE__, "accepted: %s", in.s);
    check_that(strcmp(err_text(), message) == 0, __FILE__, __LINE__, "\"%s\"\n#   not \"%s\"",
               err_text(), message);
}

static void test_refused(struct arena *a)
{
    static const struct {
        struct bytes in;
        const char *message;
    } row[] = {
        {B(""), "job.ini: no sections; a job has at least [model] and [data]"},
        {B("\n# a comment\n\n"), "job.ini: no sections; a job has at least [model] and [data]"},
        {B("\xEF\xBB\xBF[a]\n"),
         "job.ini:1: begins with a byte order mark; save it as UTF-8 without one"},
        {B("\xFF\xFE[\0a\0]\0"), "job.ini:1: is UTF-16; save it as UTF-8"},
        {B("[a]\nk = \0\n"), "job.ini:2: a NUL byte; is this a text file?"},
        {B("[a]\nk = \x01\n"), "job.ini:2: a control character (byte 0x01)"},
        {B("[a]\rk = 1\n"), "job.ini:1: a control character (byte 0x0d)"},
        {B("[a]\n\n# \xC3\x28\n"), "job.ini:3: byte 3 of the line is not UTF-8"},
        {B("[a]\nk = /x \\\nj = 1\n"),
         "job.ini:2: ends in \\, which INI readers take as \"goes on in the next line\"; a value "
         "stands on one line"},
        {B("[a]\n# C:\\\nj = 1\n"),
         "job.ini:2: ends in \\, which INI readers take as \"goes on in the next line\"; a value "
         "stands on one line"},
        {B("[a\nk = 1\n"), "job.ini:1: a section header ends in ]"},
        {B("[a] x\n"), "job.ini:1: text behind the section header: \"x\""},
        {B("[]\n"), "job.ini:1: an empty section name"},
        {B("[ \t]\n"), "job.ini:1: an empty section name"},
        {B("[a:b]\n"), "job.ini:1: section [a:b]: a : in a name; parts are joined with dots"},
        {B("[a b]\n"),
         "job.ini:1: section [a b]: a name is made of letters, digits, _, - and dots"},
        {B("[a..b]\n"), "job.ini:1: section [a..b]: an empty part before or behind a dot"},
        {B("[.a]\n"), "job.ini:1: section [.a]: an empty part before or behind a dot"},
        {B("[a.]\n"), "job.ini:1: section [a.]: an empty part before or behind a dot"},
        {B("[a]\n[b]\n[A] # again\n"),
         "job.ini:3: section [a] stands twice, first in line 1; merge the two"},
        {B("[a]\nk = 1\nj = 2\nK = 1\n"), "job.ini:4: k stands twice in [a], first in line 2"},
        {B("k = 1\n[a]\n"), "job.ini:1: k stands before the first [section]"},
        {B("[a]\nk: value\n"), "job.ini:2: \"k: value\": this is INI: write ="},
        {B("[a]\nk: x = y\n"), "job.ini:2: \"k: x\": this is INI: write ="},
        {B("[a]\nk:j = y\n"), "job.ini:2: key \"k:j\": a : in a name; parts are joined with dots"},
        {B("[a]\nvalue\n"), "job.ini:2: \"value\" has no =; a line is key = value, [section], or a "
                            "comment behind #"},
        {B("[a]\n = 1\n"), "job.ini:2: no key before ="},
        {B("[a]\nk j = 1\n"),
         "job.ini:2: key \"k j\": a name is made of letters, digits, _, - and dots"},
        {B("[a]\nk =\n"), "job.ini:2: k has no value; write k = \"\" if an empty one is meant"},
        {B("[a]\nk = # 1\n"), "job.ini:2: k has no value; write k = \"\" if an empty one is meant"},
        {B("[a]\nk =;1\n"), "job.ini:2: ; without a blank before it: \";1\"; quote the value"},
        {B("[a]\nk = data/#1.txt\n"), "job.ini:2: # without a blank before it: \"data/#1.txt\"; "
                                      "quote the value if it belongs to "
                                      "it, put a blank before it if it begins a comment"},
        {B("[a]\nk = a;b\n"), "job.ini:2: ; without a blank before it: \"a;b\"; quote the value if "
                              "it belongs to it, put "
                              "a blank before it if it begins a comment"},
        {B("[a]\nk = a \"b # c\"\n"),
         "job.ini:2: # inside quotes that do not stand around the whole "
         "value: \"a \"b # c\"\""},
        {B("[a]\nk = \"abc\n"), "job.ini:2: no closing \": \"abc"},
        {B("[a]\nk = 'it\n"), "job.ini:2: no closing ': 'it"},
        {B("[a]\nk = \"\n"), "job.ini:2: no closing \": \""},
        {B("[a]\nk = \"a\" b\n"), "job.ini:2: text behind the closing quote: \"b\"; quotes stand "
                                  "around the whole value, and "
                                  "a comment after a blank"},
        {B("[a]\nk = \"a\"# b\n"),
         "job.ini:2: text behind the closing quote: \"# b\"; quotes stand around the whole value, "
         "and a comment after a blank"},
        {B("[a]\nk = \"a\", \"b\"\n"),
         "job.ini:2: text behind the closing quote: \", \"b\"\"; quotes stand around the whole "
         "value, and a comment after a blank"},
        {B("[a]\nk = \"a\\n\"\n"), "job.ini:2: a \\ inside quotes; there are no escapes, write the "
                                   "value without quotes"},
    };
    TEST ("each thing that iniparser misreads is refused by line, in words")
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
            check_refused(a, row[i].in, row[i].message);
}

static void test_lengths(struct arena *a)
{
    char line[1200], message[200];
    struct scan s;
    TEST ("a line has at most 1,000 bytes, a value 900, a name 90") {
        int n = snprintf(line, sizeof line, "[a]\nk = 1 # ");
        memset(line + n, 'x', sizeof line - (size_t)n);
        CHECK(scan_bytes(line, 4 + 1000, a, &s) == ERR_OK);
        line[4 + 1000] = '\n';
        CHECK(scan_bytes(line, 4 + 1001, a, &s) == ERR_OK);
        line[4 + 1000] = 'x';
        check_refused(a, (struct bytes){line, 4 + 1001},
                      "job.ini:2: a line of 1001 bytes; at most 1000");
        memset(line, 'x', sizeof line);
        memcpy(line, "[a]\nk = ", 8);
        CHECK(scan_bytes(line, 8 + 900, a, &s) == ERR_OK);
        CHECK(strlen(s.entries[0].value) == 900);
        check_refused(a, (struct bytes){line, 8 + 901},
                      "job.ini:2: k has a value of 901 bytes; at most 900");
        memset(line, ' ', 1100);
        check_refused(a, (struct bytes){line, 1100},
                      "job.ini:1: a line of 1100 bytes; at most 1000");
        memset(line, 'x', sizeof line);
        line[0] = '[';
        line[91] = ']';
        CHECK(scan_bytes(line, 92, a, &s) == ERR_OK);
        line[91] = 'x';
        line[92] = ']';
        snprintf(message, sizeof message, "job.ini:1: section [%.60s]: a name has at most 90 bytes",
                 line + 1);
        check_refused(a, (struct bytes){line, 93}, message);
    }
}

static void test_accepted(struct arena *a)
{
    static const struct {
        const char *line, *key, *value;
    } row[] = {
        {"k = 1", "k", "1"},
        {"k=1", "k", "1"},
        {"\t Key_1\t=\t 1 2\t3 \t", "key_1", "1 2\t3"},
        {"zero_optimization.stage = 2 # two", "zero_optimization.stage", "2"},
        {"k = a ; b # c", "k", "a"},
        {"k = \"a;b#c\"", "k", "a;b#c"},
        {"k = '  a  ' ; blanks stay", "k", "  a  "},
        {"k = \"it's\"", "k", "it's"},
        {"k = it's 5\"", "k", "it's 5\""},
        {"k = 'say \"x\"'", "k", "say \"x\""},
        {"k = \"\"", "k", ""},
        {"k = '' # nothing", "k", ""},
        {"k = a = b", "k", "a = b"},
        {"k = = b", "k", "= b"},
        {"k = [0.9, 0.999]", "k", "[0.9, 0.999]"},
        {"k = h\\.[0-9]\\.w", "k", "h\\.[0-9]\\.w"},
        {"k = a:b", "k", "a:b"},
        {"k = http://x/?a=b", "k", "http://x/?a=b"},
        {"k = $HOME/${X}", "k", "$HOME/${X}"},
        {"k = \xEA\xB0\x80 \xF0\x9F\x98\x80", "k", "\xEA\xB0\x80 \xF0\x9F\x98\x80"},
        {"k = [x] ; a list, not a header", "k", "[x]"},
    };
    static const char *const ends[] = {"", "\n", "\r\n", "\n\n; more\n"};
    TEST ("values, quotes, comments and line ends; iniparser agrees")
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
            for (size_t k = 0; k < sizeof ends / sizeof ends[0]; k++) {
                char in[300];
                struct scan s;
                int n = snprintf(in, sizeof in, "# top\r\n\n[ A.b-c ]  ; comment\n%s%s",
                                 row[i].line, ends[k]);
                int rc = scan_bytes(in, (size_t)n, a, &s);
                check_that(rc == ERR_OK, __FILE__, __LINE__, "%s: %s", row[i].line, err_text());
                if (rc != ERR_OK)
                    continue;
                CHECK(s.n_sections == 1 && s.n_entries == 1);
                CHECK_STR(s.sections[0].name, "a.b-c");
                CHECK(s.sections[0].line == 3);
                CHECK_STR(s.entries[0].section, "a.b-c");
                CHECK_STR(s.entries[0].key, row[i].key);
                CHECK_STR(s.entries[0].value, row[i].value);
                CHECK_STR(s.entries[0].file, "job.ini");
                CHECK(s.entries[0].line == 4);
            }
    TEST ("many sections and keys keep their order and lines") {
        struct text t = {0};
        for (int i = 0; i < 100; i++)
            text_printf(&t, "[s%d]# c\nk = %d\nj%d = x\n\n", i, i, i);
        struct scan s;
        CHECK(scan_bytes(t.s, t.n_bytes, a, &s) == ERR_OK);
        CHECK(s.n_sections == 100 && s.n_entries == 200);
        for (int i = 0; i < 100; i++) {
            CHECK(s.sections[i].line == 4 * i + 1);
            CHECK(s.entries[2 * i].line == 4 * i + 2 && s.entries[2 * i + 1].line == 4 * i + 3);
            CHECK(atoi(s.entries[2 * i].value) == i);
        }
        text_clear(&t);
    }
}

static void test_compare(struct arena *a)
{
    static const char text[] = "[a]\nk = 1\nj = 2\n[b]\n";
    static const struct {
        const char *theirs, *message;
    } row[] = {
        {"[a]\nk = 1\nj = 3\n[b]\n",
         "job.ini:3: [a] j = 2: iniparser reads \"3\" here; quote the value"},
        {"[a]\nk = 1\n[b]\n",
         "job.ini:3: [a] j = 2: iniparser reads nothing here; quote the value"},
        {"[a]\nk = 1\nj = 2\n", "job.ini: iniparser finds 1 sections with 2 keys, not 2 with 2"},
        {"[a]\nk = 1\nj = 2\ni = 4\n[b]\n",
         "job.ini: iniparser finds 2 sections with 3 keys, not 2 with 2"},
        {"[a]\nk = 1\nj = 2\nwhat\n[b]\n", "job.ini: iniparser cannot read it"},
    };
    TEST ("a disagreement with iniparser is an error") {
        struct scan s;
        CHECK(scan_text("job.ini", text, sizeof text - 1, a, &s, NULL) == ERR_OK);
        CHECK(scan_compare(&s, "job.ini", text, sizeof text - 1) == ERR_OK);
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
            const char *theirs = row[i].theirs;
            CHECK(scan_compare(&s, "job.ini", theirs, strlen(theirs)) == ERR_USAGE);
            CHECK_STR(err_text(), row[i].message);
        }
    }
}

/* UTF-8 by the book: decode, then ask whether the shortest form was used. */
static bool plain_is_utf8(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned c = s[i++];
        if (c < 0x80)
            continue;
        int more = c >= 0xF8 ? -1 : c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : -1;
        if (more < 0)
            return false;
        unsigned v = c & (0x3Fu >> more);
        for (int k = 0; k < more; k++) {
            if (i >= n || (s[i] & 0xC0) != 0x80)
                return false;
            v = v << 6 | (s[i++] & 0x3Fu);
        }
        static const unsigned least[] = {0, 0x80, 0x800, 0x10000};
        if (v < least[more] || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF))
            return false;
    }
    return true;
}

static void test_utf8(void)
{
    TEST ("UTF-8 is told as a plain decoder tells it, over all two- and three-byte starts") {
        int n_bad = 0;
        size_t at;
        for (unsigned v = 0x80; v < 0x100; v++)
            for (unsigned w = 0; w < 0x100; w++)
                for (unsigned x = 0x7F; x < 0xC2; x++)
                    for (unsigned k = 1; k <= 4; k++) {
                        const unsigned char s[4] = {(unsigned char)v, (unsigned char)w,
                                                    (unsigned char)x, 0x80};
                        n_bad += scan_is_utf8((const char *)s, k, &at) != plain_is_utf8(s, k);
                    }
        CHECK(n_bad == 0);
    }
}

static void test_write(struct arena *a)
{
    static const char *const fine[] = {
        "",         "1",       " a ",  "a;b",  "#",     "\"x\"",    "'x'",
        "it's 5\"", "$x",      "a\\b", "[x]",  "a = b", "'\"",      "\xEA\xB0\x80",
        ";'",       "\"a\" b", "$$ $", "a\tb", "\t",    "say \"x;", "x\"y'",
    };
    static const struct {
        const char *value, *why;
    } bad[] = {
        {"a\nb", "control character"}, {"\x7f", "control character"}, {"\xC3", "not UTF-8"},
        {"a;\"'", "no quotes fit"},    {"a;\\", "no quotes fit"},     {"\\", "no quotes fit"},
        {" \\x", "no quotes fit"},     {"\"'", "no quotes fit"},
    };
    TEST ("a value is written so that the scan reads it back, or refused in words") {
        for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
            struct text t = {0}, want = {0};
            struct scan s;
            text_printf(&t, "[a]\n");
            const char *why = scan_write_entry(&t, "k", fine[i]);
            if (strcmp(fine[i], "'\"") == 0) {
                CHECK_HAS(why, "no quotes fit");
                text_clear(&t);
                continue;
            }
            CHECK(why == NULL);
            for (const char *c = fine[i]; *c; c++)
                text_printf(&want, *c == '$' ? "$%c" : "%c", *c);
            int rc = scan_bytes(t.s, t.n_bytes, a, &s);
            check_that(rc == ERR_OK, __FILE__, __LINE__, "%s: %s", fine[i], err_text());
            if (rc == ERR_OK)
                CHECK_STR(s.entries[0].value, want.s ? want.s : "");
            text_clear(&t);
            text_clear(&want);
        }
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            struct text t = {0};
            const char *why = scan_write_entry(&t, "k", bad[i].value);
            CHECK_HAS(why ? why : "written", bad[i].why);
            CHECK(t.n_bytes == 0);
        }
        char large[1000];
        memset(large, '$', sizeof large);
        large[450] = 0;
        struct text t = {0};
        CHECK(scan_write_entry(&t, "k", large) == NULL);
        large[450] = '$';
        large[451] = 0;
        CHECK_HAS(scan_write_entry(&t, "k", large), "900 bytes");
        text_clear(&t);
    }
}

/* Random lines: what the scan accepts, iniparser must read the same way. */
static void test_random(struct arena *a)
{
    static const char alphabet[] = "ab=  \"';#[]\\:,$\t.1\n\r";
    TEST ("10,000 random values: nothing is accepted that iniparser reads differently") {
        uint32_t x = 12345;
        int n_accepted = 0;
        for (int i = 0; i < 10000; i++) {
            char in[32] = "[s]\nk = ";
            size_t n = strlen(in);
            for (int k = 0; k < 2 + i % 10; k++) {
                x = x * 1664525u + 1013904223u;
                in[n++] = alphabet[(x >> 16) % (sizeof alphabet - 1)];
            }
            struct scan s;
            if (scan_text("job.ini", in, n, a, &s, NULL) != ERR_OK)
                continue;
            int rc = scan_bytes(in, n, a, &s);
            check_that(rc == ERR_OK, __FILE__, __LINE__, "%.*s: %s", (int)n, in, err_text());
            n_accepted++;
        }
        CHECK(n_accepted > 1000);
    }
}

int main(void)
{
    struct arena *a = arena_create();
    test_refused(a);
    test_lengths(a);
    test_accepted(a);
    test_compare(a);
    test_utf8();
    test_write(a);
    test_random(a);
    arena_destroy(&a);
    return check_done();
}
