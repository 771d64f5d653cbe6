/* The tables of all sources, and which source a file gets.
 * RUN: -n 1 */
#include "data_fixture.h"

struct guess {
    const char *name, *type;
    const char *bytes;
    size_t n_bytes;
};

static const struct guess guesses[] = {
    {"a.txt", "text", "x", 1},
    {"A.TXT", "text", "x", 1},
    {"a.csv", "csv", "x", 1},
    {"a.CSV.GZ", "csv", "x", 1},
    {"t10k-images-idx3-ubyte", "idx", "x", 1},
    {"t10k-images-idx3-ubyte.gz", "idx", "x", 1},
    {"a.idx", "idx", "x", 1},
    {"plain", "text", "", 0},
    {"plain", "text", "book", 4},
    {"plain.gz", "text", "book", 4},
    {"digits", "idx", "\0\0\x08\x03\0\0", 6},
    {"digits", "text", "\0\0\x07\x03\0\0", 6},
    {"csv", "text", "1,2\n", 4},
};

static void test_guesses(struct fixture *f)
{
    const struct data_ops *ops;
    const char *key;
    for (size_t i = 0; i < sizeof guesses / sizeof *guesses; i++) {
        const struct guess *g = &guesses[i];
        struct data_conf conf = {.path = fixture_file(f, g->name, g->bytes, g->n_bytes)};
        CHECK(data_type_of(&conf, &ops, &key) == ERR_OK);
        CHECK_STR(ops->name, g->type);
    }
    struct data_conf packed = {.path = fixture_gzip(f, "p", "\0\0\x08\x01\0", 5, "wb")};
    CHECK(data_type_of(&packed, &ops, &key) == ERR_OK);
    CHECK_STR(ops->name, "idx");
}

int main(void)
{
    struct fixture f;
    fixture_init(&f);
    TEST ("tables are sound") {
        CHECK(opt_check_table(data_opts, f.arena) == ERR_OK);
        for (int i = 0; data_list[i]; i++)
            CHECK(opt_check_table(data_list[i]->opts, f.arena) == ERR_OK);
        if (check_bad_here)
            printf("# %s\n", err_text());
    }
    TEST ("the words of type are auto and the list's names") {
        int n = 0;
        while (data_list[n]) {
            CHECK_STR(data_type_words[n + 1], data_list[n]->name);
            n++;
        }
        CHECK_STR(data_type_words[0], "auto");
        CHECK(data_type_words[n + 1] == NULL);
    }
    TEST ("auto goes by the name, then by the content")
        test_guesses(&f);
    TEST ("a named type is taken at its word, a missing path is not") {
        const struct data_ops *ops;
        const char *key = NULL;
        struct data_conf conf = {.path = "no/such.csv", .type = 1};
        CHECK(data_type_of(&conf, &ops, &key) == ERR_OK);
        CHECK_STR(ops->name, "text");
        conf.path = NULL;
        CHECK(data_type_of(&conf, &ops, &key) == ERR_USAGE);
        CHECK_STR(key, "path");
        CHECK_HAS(err_text(), "no path is given");
        conf = (struct data_conf){.path = "no/such"};
        CHECK(data_type_of(&conf, &ops, &key) == ERR_DATA);
        CHECK_STR(key, "path");
        struct data *d = NULL;
        data_close(&d);
    }
    fixture_clear(&f);
    return check_done();
}
