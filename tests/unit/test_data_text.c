/* Text: every neighbouring pair of tokens is learned once in its part, whatever T; gzip; files that
 * are no good.
 * RUN: -n 1 */
#include "data_fixture.h"

#include <sys/stat.h>

/* Walk through a part and compare with the tokens themselves. */
static void check_part(struct fixture *f, enum data_part part, const char *want, int64_t n,
                       int64_t T)
{
    const struct data *d = f->data;
    int32_t ids[64], targets[64];
    struct batch_row row = {.ids = ids, .targets = targets};
    int64_t pair = 0;
    for (int64_t i = 0; i < d->n_samples[part]; i++) {
        int64_t n_valid = d->ops->n_valid(d, part, i), counted = 0;
        d->ops->get(d, part, i, &row);
        for (int64_t t = 0; t < T; t++) {
            if (targets[t] == -1) {
                CHECK(ids[t] == 0 && i == d->n_samples[part] - 1 && t > 0);
                continue;
            }
            CHECK(counted == t && pair + 1 < n);
            CHECK(ids[t] == want[pair] && targets[t] == want[pair + 1]);
            counted++;
            pair++;
        }
        CHECK(counted == n_valid);
    }
    CHECK(pair == (n > 0 ? n - 1 : 0));
}

static void test_windows(struct fixture *f)
{
    static const double share[] = {1, 0.9, 0.5};
    char tokens[60];
    for (int i = 0; i < 60; i++)
        tokens[i] = (char)(1 + (i * i + 7 * i) % 120);
    for (int n = 20; n <= 60; n += 5) {
        const char *path = fixture_file(f, "tokens.txt", tokens, (size_t)n);
        for (int k = 0; k < 3; k++) {
            char set[32];
            snprintf(set, sizeof set, "split=%g", share[k]);
            int64_t n_train = (int64_t)(n * share[k]); /* nanoGPT: int(n * 0.9) */
            for (int64_t T = 1; T <= 64; T += T < 30 ? 1 : 10) {
                CHECK(fixture_open(f, path, set, NULL, T) == ERR_OK);
                check_part(f, DATA_TRAIN, tokens, n_train, T);
                check_part(f, DATA_EVAL, tokens + n_train, n - n_train, T);
            }
        }
    }
}

static void test_novel(struct fixture *f)
{
    const char *path = "jobs/data/pride_and_prejudice.txt";
    CHECK(fixture_open(f, path, "", NULL, 256) == ERR_OK);
    const struct data *d = f->data;
    CHECK(d->shape.kind == SAMPLE_TOKENS && d->shape.vocab == 256 && d->shape.T == 0);
    CHECK(d->n_samples[DATA_TRAIN] == (616291 - 1 + 255) / 256); /* int(684768 * 0.9) */
    CHECK(d->n_samples[DATA_EVAL] == (68477 - 1 + 255) / 256);
    CHECK(fixture_open(f, path, "tokenizer=chars|split=1", NULL, 100) == ERR_OK);
    CHECK(f->data->shape.vocab == 75); /* len(set(text)) in Python */
    int32_t ids[100], targets[100];
    struct batch_row row = {.ids = ids, .targets = targets};
    f->data->ops->get(f->data, DATA_TRAIN, 0, &row);
    struct text t = {0};
    for (int i = 0; i < 19; i++)
        vocab_decode(f->data->vocab, ids[i], &t);
    CHECK_STR(t.s, "PRIDE AND PREJUDICE");
    text_clear(&t);
}

static void test_known(struct fixture *f)
{
    const struct vocab *v;
    CHECK(vocab_from_text("abcxyz\n", 7, f->arena, &v) == ERR_OK);
    const char *path = fixture_file(f, "a.txt", "xabcx", 5);
    CHECK(fixture_open(f, path, "tokenizer=chars|split=1", v, 4) == ERR_OK);
    CHECK(f->data->vocab == v && f->data->shape.vocab == 7);
    int32_t ids[4], targets[4];
    f->data->ops->get(f->data, DATA_TRAIN, 0, &(struct batch_row){.ids = ids, .targets = targets});
    CHECK(ids[0] == 4 && ids[1] == 1 && targets[3] == 4);
    CHECK(fixture_open(f, path, "tokenizer=bytes", v, 4) == ERR_USAGE);
    CHECK_HAS(err_text(), "tokenizer = bytes, but the checkpoint was trained with chars");
    path = fixture_file(f, "b.txt", "abc\nxxq", 7);
    CHECK(fixture_open(f, path, "tokenizer=chars", v, 4) == ERR_DATA);
    CHECK_HAS(err_text(), "/b.txt: line 2, character 3: 'q' (U+0071)");
    path = fixture_file(f, "c.csv", "1,0\n2,1\n", 8);
    CHECK(fixture_open(f, path, "split=0.5", v, 4) == ERR_DATA);
    CHECK_HAS(err_text(), "holds no tokens");
}

static void test_gzip(struct fixture *f)
{
    static char big[300000];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)("abcdefgh"[(i * i / 7) % 8]);
    fixture_gzip(f, "big.txt.gz", big, 100000, "wb");
    const char *path = fixture_gzip(f, "big.txt.gz", big + 100000, sizeof big - 100000, "ab");
    char *out;
    size_t n;
    CHECK(data_read(path, &out, &n) == ERR_OK && n == sizeof big && memcmp(out, big, n) == 0);
    free(out);
    CHECK(fixture_open(f, path, "split=1", NULL, 1000) == ERR_OK);
    CHECK(f->data->n_samples[DATA_TRAIN] == 300);
    char *packed;
    size_t n_packed;
    CHECK(file_read(path, 1 << 20, ERR_DATA, &packed, &n_packed) == ERR_OK);
    CHECK(data_unpack("x.gz", packed, n_packed, sizeof big, &out, &n) == ERR_OK);
    CHECK(n == sizeof big);
    free(out);
    CHECK(data_unpack("x.gz", packed, n_packed, sizeof big - 1, &out, &n) == ERR_RESOURCE);
    CHECK_HAS(err_text(), "x.gz unpacks to more than 293 KiB");
    CHECK(data_unpack("x.gz", packed, n_packed - 1, 2 * sizeof big, &out, &n) == ERR_DATA);
    CHECK_HAS(err_text(), "x.gz is truncated");
    free(packed);
    path = fixture_gzip(f, "none.gz", "", 0, "wb");
    CHECK(fixture_open(f, path, "", NULL, 8) == ERR_DATA);
    CHECK_HAS(err_text(), "none.gz is empty");
}

/* Cut a packed file everywhere, flip each of its bits, put bytes behind it: never other text. */
static void test_damage(struct fixture *f)
{
    static const char text[] = "It is a truth universally acknowledged, that a single man";
    const char *path = fixture_gzip(f, "d.gz", text, sizeof text, "wb");
    char *packed, *out, longer[200];
    size_t n_packed, n;
    CHECK(file_read(path, 1 << 20, ERR_DATA, &packed, &n_packed) == ERR_OK);
    for (size_t cut = 2; cut < n_packed; cut++) {
        CHECK(data_unpack("d.gz", packed, cut, 1000, &out, &n) == ERR_DATA);
        CHECK_HAS(err_text(), "d.gz is truncated");
        path = fixture_file(f, "cut.gz", packed, cut);
        CHECK(fixture_open(f, path, "", NULL, 8) == ERR_DATA);
    }
    int refused = 0;
    for (size_t bit = 0; bit < 8 * n_packed; bit++) {
        packed[bit / 8] = (char)(packed[bit / 8] ^ 1 << bit % 8);
        if (data_unpack("d.gz", packed, n_packed, 1000, &out, &n) == ERR_OK) {
            CHECK(n == sizeof text && memcmp(out, text, n) == 0); /* time or system in its head */
            free(out);
        } else {
            refused++;
        }
        packed[bit / 8] = (char)(packed[bit / 8] ^ 1 << bit % 8);
    }
    CHECK(refused >= (int)(8 * (n_packed - 10)));
    memcpy(longer, packed, n_packed);
    memcpy(longer + n_packed, "more", 4);
    CHECK(data_unpack("d.gz", longer, n_packed + 4, 1000, &out, &n) == ERR_DATA);
    CHECK_HAS(err_text(), "d.gz: bytes that are not gzip follow its end");
    free(packed);
}

struct bad {
    const char *text, *settings, *words;
};

static const struct bad bad_files[] = {
    {"", "", "/bad.txt is empty"},
    {"", "tokenizer=chars", "/bad.txt is empty"},
    {"a", "split=1", "split = 1 of its 1 tokens leaves 1 to train on"},
    {"abcdefghij", "", "split = 0.9 of its 10 tokens leaves 1 to evaluate on"},
    {"abcdefghij", "split=0.1", "leaves 1 to train on"},
    {"abcdefghij", "split=0", "leaves 0 to train on"},
    {"abc\xFF", "tokenizer=chars", "/bad.txt: byte 3 (line 1) is 0xff"},
};

static void test_bad(struct fixture *f)
{
    char path[128];
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        const struct bad *b = &bad_files[i];
        const char *p = fixture_file(f, "bad.txt", b->text, strlen(b->text));
        CHECK(fixture_open(f, p, b->settings, NULL, 8) == ERR_DATA);
        CHECK_HAS(err_text(), b->words);
    }
    CHECK(fixture_open(f, "no/such.txt", "", NULL, 8) == ERR_DATA);
    CHECK_HAS(err_text(), "cannot open no/such.txt: No such file");
    CHECK(fixture_open(f, "no/such", "", NULL, 8) == ERR_DATA);
    CHECK_HAS(err_text(), "cannot open no/such: No such file");
    CHECK(fixture_open(f, f->dir, "", NULL, 8) == ERR_DATA);
    CHECK_HAS(err_text(), "is not a regular file");
    snprintf(path, sizeof path, "%s/pipe.txt", f->dir);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(fixture_open(f, path, "", NULL, 8) == ERR_DATA); /* and does not wait for a writer */
    CHECK_HAS(err_text(), "pipe.txt is not a regular file");
}

int main(void)
{
    struct fixture f;
    fixture_init(&f);
    TEST ("windows: each pair of tokens once, a short last one, no pair across the split")
        test_windows(&f);
    TEST ("the novel: sizes as nanoGPT cuts it, 75 characters")
        test_novel(&f);
    TEST ("a vocabulary from a checkpoint rules")
        test_known(&f);
    TEST ("gzip: members, a limit, an end")
        test_gzip(&f);
    TEST ("gzip: damage is found")
        test_damage(&f);
    TEST ("files that are no good")
        test_bad(&f);
    fixture_clear(&f);
    return check_done();
}
