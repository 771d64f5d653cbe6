/* Option tables: values to fields and back, what is refused and in which words, help, and the
 * check that finds a broken table. */
/* RUN: -n 1 */
#include "job/opt.h"

#include "base/rng.h"
#include "base/text.h"
#include "check.h"
#include <stdlib.h>

struct conf {
    bool flag;
    int64_t steps, ranks, any;
    double lr, scale, wide;
    const char *name, *path;
    int type;
    struct opt_i64s sizes;
    struct opt_f64s betas;
    struct opt_strs files;
};

static const char *const type_words[] = {"AdamW", "SGD", "one_bit-adam", NULL};

static const struct opt opts[] = {
    BOOL(conf, flag, "false", "a switch"),
    I64(conf, steps, "100", 1, 1000000, "steps to run"),
    I64_AUTO(conf, ranks, "auto", 1, 64, "ranks"),
    I64(conf, any, "0", -INFINITY, INFINITY, "any integer"),
    F64(conf, lr, "3e-4", 0, 1, "peak rate"),
    F64_AUTO(conf, scale, "auto", -1, INFINITY, "scale"),
    F64(conf, wide, "0", -INFINITY, INFINITY, "any number"),
    STR(conf, name, NULL, "a name"),
    STR_PATH(conf, path, "x.txt", "a file"),
    ENUM(conf, type, "AdamW", type_words, "the rule"),
    I64S(conf, sizes, NULL, 1, 4096, "layer sizes"),
    F64S(conf, betas, "0.9, 0.999", 0, 1, "decays"),
    STRS(conf, files, NULL, "files to read"),
    {.type = OPT_END},
};

static int parse(const char *key, const char *value, struct conf *c, struct arena *a)
{
    const struct opt *o = opt_find(opts, key);
    err_set(ERR_OK, "nothing");
    return o ? opt_parse(o, value, c, a) : ERR_INTERNAL;
}

static void test_integers(struct arena *a)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"7", 7},
        {"+7", 7},
        {"-7", -7},
        {"-0", 0},
        {"1e9", 1000000000},
        {"5E8", 500000000},
        {"2e+3", 2000},
        {"0e99", 0},
        {"-3e2", -300},
        {"1e00", 1},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807", -INT64_MAX},
        {"9e18", 9000000000000000000},
    };
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "must be an integer"},
        {"12abc", "must be an integer"},
        {"abc", "must be an integer"},
        {"0x10", "must be an integer"},
        {"1.0", "must be an integer"},
        {"1e-1", "must be an integer"},
        {"1e", "must be an integer"},
        {"1e+", "must be an integer"},
        {"1.5e3", "must be an integer"},
        {"- 1", "must be an integer"},
        {" 1", "must be an integer"},
        {"1 ", "must be an integer"},
        {"--1", "must be an integer"},
        {"auto", "must be an integer"},
        {"010", "a leading zero (elsewhere it means octal); must be an integer"},
        {"-00", "a leading zero (elsewhere it means octal); must be an integer"},
        {"1_000", "digits are written without separators; must be an integer"},
        {"9223372036854775808", "too large for 64 bits; must be an integer"},
        {"1e19", "too large for 64 bits; must be an integer"},
        {"99999999999999999999", "too large for 64 bits; must be an integer"},
        {"1e4294967297", "too large for 64 bits; must be an integer"},
    };
    struct conf c = {0};
    TEST ("integers are decimal and read to their last character") {
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            int rc = parse("any", good[i].text, &c, a);
            check_that(rc == ERR_OK && c.any == good[i].value, __FILE__, __LINE__, "%s: %jd %s",
                       good[i].text, (intmax_t)c.any, err_text());
        }
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            c.any = 42;
            CHECK(parse("any", bad[i].text, &c, a) == ERR_USAGE);
            CHECK_STR(err_text(), bad[i].words);
            CHECK(c.any == 42);
        }
    }
    TEST ("random 64-bit integers come back") {
        struct rng_key key = rng_key_make(3, 4);
        for (uint64_t i = 0; i < 1000; i++) {
            uint32_t w[4];
            char text[32];
            rng_block(key, 0, i, w);
            int64_t v = (int64_t)((uint64_t)w[0] << 32 | w[1]) >> (w[2] % 63);
            snprintf(text, sizeof text, "%jd", (intmax_t)v);
            CHECK(parse("any", text, &c, a) == ERR_OK && c.any == v);
        }
    }
}

static void test_ranges(struct arena *a)
{
    static const struct {
        const char *key, *text, *words; /* NULL: accepted */
    } row[] = {
        {"steps", "1", NULL},
        {"steps", "1000000", NULL},
        {"steps", "1e6", NULL},
        {"steps", "0", "must be an integer from 1 to 1000000"},
        {"steps", "1000001", "must be an integer from 1 to 1000000"},
        {"steps", "auto", "must be an integer from 1 to 1000000"},
        {"ranks", "auto", NULL},
        {"ranks", "AUTO", NULL},
        {"ranks", "64", NULL},
        {"ranks", "65", "must be an integer from 1 to 64, or auto"},
        {"ranks", "automatic", "must be an integer from 1 to 64, or auto"},
        {"lr", "0", NULL},
        {"lr", "1", NULL},
        {"lr", "1.0000001", "must be a number from 0 to 1"},
        {"lr", "-1e-9", "must be a number from 0 to 1"},
        {"lr", "auto", "must be a number from 0 to 1"},
        {"scale", "auto", NULL},
        {"scale", "-1", NULL},
        {"scale", "1e300", NULL},
        {"scale", "-1.5", "must be a number, at least -1, or auto"},
    };
    struct conf c = {0};
    TEST ("ranges are inclusive and named; auto only where it is allowed")
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
            int rc = parse(row[i].key, row[i].text, &c, a);
            check_that(rc == (row[i].words ? ERR_USAGE : ERR_OK), __FILE__, __LINE__, "%s = %s: %s",
                       row[i].key, row[i].text, err_text());
            if (row[i].words)
                CHECK_STR(err_text(), row[i].words);
        }
    TEST ("auto reads as its own value") {
        CHECK(parse("ranks", "auto", &c, a) == ERR_OK && c.ranks == OPT_AUTO_I64);
        CHECK(parse("scale", "Auto", &c, a) == ERR_OK && opt_is_auto(c.scale));
        CHECK_STR(opt_print(opt_find(opts, "ranks"), &c, a), "auto");
        CHECK_STR(opt_print(opt_find(opts, "scale"), &c, a), "auto");
    }
}

static void test_numbers(struct arena *a)
{
    static const char *const good[] = {
        "0",   "1",    "-1",    "+2.5",     ".5",
        "5.",  "1e-3", "1E+3",  "2.5e2",    "010",
        "0.1", "-.0",  "1e308", "4.9e-324", "123456789012345678901234567890"};
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "must be a number"},
        {".", "must be a number"},
        {"1.2.3", "must be a number"},
        {"1e", "must be a number"},
        {"e5", "must be a number"},
        {"0x1p3", "must be a number"},
        {"inf", "must be a number"},
        {"nan", "must be a number"},
        {"1f", "must be a number"},
        {" 1", "must be a number"},
        {"1 ", "must be a number"},
        {"0,5", "the decimal sign is a point; must be a number"},
        {"1e309", "too large for a double; must be a number"},
        {"1e-400", "too near to zero for a double; must be a number"},
    };
    struct conf c = {0};
    TEST ("numbers are decimal, finite, and read to their last character") {
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            int rc = parse("wide", good[i], &c, a);
            check_that(rc == ERR_OK && c.wide == atof(good[i]), __FILE__, __LINE__, "%s: %g %s",
                       good[i], c.wide, err_text());
        }
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            CHECK(parse("wide", bad[i].text, &c, a) == ERR_USAGE);
            CHECK_STR(err_text(), bad[i].words);
        }
    }
    TEST ("printed numbers read back to the same bits") {
        struct rng_key key = rng_key_make(5, 6);
        const struct opt *o = opt_find(opts, "wide");
        for (uint64_t i = 0; i < 2000; i++) {
            uint32_t w[4];
            rng_block(key, 0, i, w);
            uint64_t bits = (uint64_t)w[0] << 32 | w[1];
            double v;
            memcpy(&v, &bits, sizeof v);
            if (!isfinite(v))
                continue;
            c.wide = v;
            const char *s = opt_print(o, &c, a);
            c.wide = 0;
            CHECK(opt_parse(o, s, &c, a) == ERR_OK && memcmp(&c.wide, &v, sizeof v) == 0);
        }
        c.wide = 3e-4;
        CHECK_STR(opt_print(o, &c, a), "0.0003");
        c.wide = 100;
        CHECK_STR(opt_print(o, &c, a), "100");
        c.wide = 0.1 + 0.2;
        CHECK_STR(opt_print(o, &c, a), "0.30000000000000004");
    }
}

static void test_words(struct arena *a)
{
    static const struct {
        const char *key, *text;
        int value;
    } good[] = {
        {"flag", "true", 1},  {"flag", "YES", 1}, {"flag", "On", 1},           {"flag", "1", 1},
        {"flag", "False", 0}, {"flag", "no", 0},  {"flag", "off", 0},          {"flag", "0", 0},
        {"type", "adamw", 0}, {"type", "SGD", 1}, {"type", "One-Bit_Adam", 2},
    };
    static const struct {
        const char *key, *text, *words;
    } bad[] = {
        {"flag", "", "must be true or false"},
        {"flag", "tru", "must be true or false"},
        {"flag", "2", "must be true or false"},
        {"type", "", "must be one of: AdamW, SGD, one_bit-adam"},
        {"type", "adanw", "must be one of: AdamW, SGD, one_bit-adam; did you mean AdamW?"},
        {"type", "sdg", "must be one of: AdamW, SGD, one_bit-adam; did you mean SGD?"},
        {"type", "lion", "must be one of: AdamW, SGD, one_bit-adam"},
        {"path", "", "a path may not be empty"},
    };
    struct conf c = {0};
    TEST ("switches and enums ignore case, and - is _; a wrong word names the nearest") {
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            c.flag = !good[i].value;
            c.type = -1;
            CHECK(parse(good[i].key, good[i].text, &c, a) == ERR_OK);
            CHECK((good[i].key[0] == 'f' ? c.flag : c.type) == good[i].value);
        }
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            CHECK(parse(bad[i].key, bad[i].text, &c, a) == ERR_USAGE);
            CHECK_STR(err_text(), bad[i].words);
        }
    }
    TEST ("a text is kept as it is") {
        CHECK(parse("name", " A b;c ", &c, a) == ERR_OK);
        CHECK_STR(c.name, " A b;c ");
        CHECK(parse("name", "", &c, a) == ERR_OK);
        CHECK_STR(c.name, "");
        c.name = NULL;
        CHECK(opt_print(opt_find(opts, "name"), &c, a) == NULL);
    }
}

static void test_lists(struct arena *a)
{
    static const char *const same[] = {"3,14,15",   "3, 14, 15",     "3 14 15",
                                       "[3,14,15]", "[ 3 ,14\t15 ]", "3 ,14 , 15"};
    static const struct {
        const char *key, *text, *words;
    } bad[] = {
        {"sizes", "1,,2",
         "an item of the list is empty; must be a list of integers from 1 to 4096"},
        {"sizes", "1,", "an item of the list is empty; must be a list of integers from 1 to 4096"},
        {"sizes", ",1", "an item of the list is empty; must be a list of integers from 1 to 4096"},
        {"sizes", "[1,]",
         "an item of the list is empty; must be a list of integers from 1 to 4096"},
        {"sizes", "[1",
         "[ and ] stand around a list together or not at all; must be a list of "
         "integers from 1 to 4096"},
        {"sizes", "1]",
         "[ and ] stand around a list together or not at all; must be a list of "
         "integers from 1 to 4096"},
        {"sizes", "[",
         "[ and ] stand around a list together or not at all; must be a list of "
         "integers from 1 to 4096"},
        {"sizes", "1,x", "\"x\" does not fit; must be a list of integers from 1 to 4096"},
        {"sizes", "1,0", "\"0\" does not fit; must be a list of integers from 1 to 4096"},
        {"sizes", "64 010",
         "\"010\": a leading zero (elsewhere it means octal); must be a list of "
         "integers from 1 to 4096"},
        {"betas", "0.9, 1.5", "\"1.5\" does not fit; must be a list of numbers from 0 to 1"},
        {"files", "a,,b",
         "an item of the list is empty; must be a list of words, separated by "
         "commas"},
    };
    struct conf c = {0};
    TEST ("lists, with commas, blanks and brackets") {
        for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
            memset(&c.sizes, 0, sizeof c.sizes);
            CHECK(parse("sizes", same[i], &c, a) == ERR_OK);
            CHECK(c.sizes.n == 3 && c.sizes.v[0] == 3 && c.sizes.v[1] == 14 && c.sizes.v[2] == 15);
        }
        CHECK_STR(opt_print(opt_find(opts, "sizes"), &c, a), "3, 14, 15");
        CHECK(parse("betas", "[0.9, .95]", &c, a) == ERR_OK);
        CHECK(c.betas.n == 2 && c.betas.v[0] == 0.9 && c.betas.v[1] == 0.95);
        CHECK_STR(opt_print(opt_find(opts, "betas"), &c, a), "0.9, 0.95");
        CHECK(parse("files", "a b.txt , c.txt", &c, a) == ERR_OK && c.files.n == 2);
        CHECK_STR(c.files.v[0], "a b.txt");
        CHECK_STR(c.files.v[1], "c.txt");
        CHECK_STR(opt_print(opt_find(opts, "files"), &c, a), "a b.txt,c.txt");
        CHECK(parse("files", "h[ab], x", &c, a) == ERR_OK && c.files.n == 2);
        CHECK(parse("files", "[ab]h", &c, a) == ERR_OK && c.files.n == 1);
        CHECK_STR(c.files.v[0], "[ab]h");
        static const char *const none[] = {"", "[]", " [ ] "};
        for (int i = 0; i < 3; i++) {
            c.sizes.n = c.files.n = 9;
            CHECK(parse("sizes", none[i], &c, a) == ERR_OK && c.sizes.n == 0);
            CHECK(parse("files", none[i], &c, a) == ERR_OK && c.files.n == 0);
        }
    }
    TEST ("wrong lists are refused, the item named") {
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            CHECK(parse(bad[i].key, bad[i].text, &c, a) == ERR_USAGE);
            CHECK_STR(err_text(), bad[i].words);
        }
        struct text t = {0};
        for (int i = 0; i < OPT_LIST_MAX; i++)
            text_printf(&t, "%s%d", i ? "," : "", i + 1);
        CHECK(parse("sizes", t.s, &c, a) == ERR_OK && c.sizes.n == OPT_LIST_MAX);
        text_printf(&t, ",7");
        CHECK(parse("sizes", t.s, &c, a) == ERR_USAGE);
        CHECK_STR(err_text(), "a list has at most 32 items");
        text_clear(&t);
    }
}

static void test_tables(struct arena *a)
{
    TEST ("defaults fill the whole struct") {
        struct conf c;
        memset(&c, 0xA5, sizeof c);
        CHECK(opt_defaults(opts, &c, a) == ERR_OK);
        CHECK(!c.flag && c.steps == 100 && c.ranks == OPT_AUTO_I64 && c.lr == 3e-4);
        CHECK(opt_is_auto(c.scale) && c.name == NULL && c.type == 0 && c.sizes.n == 0);
        CHECK(c.betas.n == 2 && c.betas.v[1] == 0.999 && c.files.n == 0);
        CHECK_STR(c.path, "x.txt");
    }
    TEST ("keys are found by name and alias in any case") {
        struct opt t[] = {opts[4], opts[1], {.type = OPT_END}};
        t[0].aliases = "learning_rate max_lr";
        CHECK(opt_find(t, "LR") == &t[0] && opt_find(t, "max_lr") == &t[0]);
        CHECK(opt_find(t, "Learning_Rate") == &t[0] && opt_find(t, "steps") == &t[1]);
        CHECK(!opt_find(t, "learning") && !opt_find(t, "rate") && !opt_find(t, "") &&
              !opt_find(t, "learning_rate max_lr") && !opt_find(NULL, "x"));
    }
    TEST ("help names key, default, meaning, what is allowed and other spellings, in columns") {
        struct opt t[] = {opts[1], opts[9], opts[7], opts[4], {.type = OPT_END}};
        t[0].aliases = "n_steps iterations";
        t[2].flags = OPT_REQUIRED;
        t[3].flags = OPT_HIDDEN;
        t[1].help = "the rule by which weights move, out of those that this program knows by heart";
        struct text out = {0};
        opt_help(t, &out, a);
        CHECK_STR(
            out.s,
            "  steps = 100      steps to run; an integer from 1 to 1000000; also written "
            "n_steps iterations\n"
            "  type = AdamW     the rule by which weights move, out of those that this program "
            "knows by heart;\n"
            "                   one of: AdamW, SGD, one_bit-adam\n"
            "  name (required)  a name; a text\n");
        text_clear(&out);
    }
}

static void test_table_check(struct arena *a)
{
    const struct opt ok = I64(conf, steps, "1", 1, 9, "help");
    struct opt t[12][3];
    static const char *const words[] = {
        "key \"Steps\" is not made of a-z, 0-9, _ and single dots",
        "key \"a..b\" is not made of a-z, 0-9, _ and single dots",
        "key steps stands twice in its table",
        "alias steps of other is taken",
        "steps has no value in its range",
        "steps has no range",
        "steps: only a number can be auto",
        "steps: an enum, and nothing else, has words",
        "steps is required and has a default",
        "steps has no default",
        "default \"x\" of steps: must be an integer from 1 to 9",
        "steps has no help",
    };
    for (int i = 0; i < 12; i++) {
        t[i][0] = ok;
        t[i][1] = t[i][2] = (struct opt){.type = OPT_END};
    }
    t[0][0].name = "Steps";
    t[1][0].name = "a..b";
    t[2][1] = ok;
    t[3][1] = ok;
    t[3][0].name = "other";
    t[3][0].aliases = "steps";
    t[4][0].max = 0;
    t[5][0].min = t[5][0].max = 0;
    t[6][0].type = OPT_BOOL;
    t[6][0].flags = OPT_AUTO;
    t[7][0].type = OPT_ENUM;
    t[8][0].flags = OPT_REQUIRED;
    t[9][0].dflt = NULL;
    t[10][0].dflt = "x";
    t[11][0].help = "";
    TEST ("a sound table passes its check, a broken one does not") {
        CHECK(opt_check_table(opts, a) == ERR_OK);
        for (int i = 0; i < 12; i++) {
            CHECK(opt_check_table(t[i], a) == ERR_INTERNAL);
            CHECK_STR(err_text(), words[i]);
        }
    }
}

int main(void)
{
    struct arena *a = arena_create();
    test_integers(a);
    test_ranges(a);
    test_numbers(a);
    test_words(a);
    test_lists(a);
    test_tables(a);
    test_table_check(a);
    arena_destroy(&a);
    return check_done();
}
