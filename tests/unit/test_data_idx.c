/* IDX files: pixels and labels as written, the split, label files by name, files that are no good.
 * RUN: -n 1 */
#include "data_fixture.h"

enum { N = 30, SIDE = 3, N_IN = SIDE * SIDE };

struct sample_set {
    unsigned char images[16 + N * N_IN];
    unsigned char labels[8 + N];
};

/* Pixel j of image i is a known number, and so is its label. */
static unsigned char pixel_of(int i, int j)
{
    return (unsigned char)(i * 7 + j * 29);
}

static void make_set(struct sample_set *s)
{
    memcpy(s->images, "\0\0\x08\x03\0\0\0\x1e\0\0\0\x03\0\0\0\x03", 16);
    memcpy(s->labels, "\0\0\x08\x01\0\0\0\x1e", 8);
    for (int i = 0; i < N; i++) {
        s->labels[8 + i] = (unsigned char)(i % 5);
        for (int j = 0; j < N_IN; j++)
            s->images[16 + i * N_IN + j] = pixel_of(i, j);
    }
}

static const char *write_set(struct fixture *f, const struct sample_set *s, const char *head,
                             bool packed)
{
    char name[64];
    const char *end = packed ? ".gz" : "";
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte%s", head, end);
    if (packed)
        fixture_gzip(f, name, s->labels, sizeof s->labels, "wb");
    else
        fixture_file(f, name, s->labels, sizeof s->labels);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte%s", head, end);
    return packed ? fixture_gzip(f, name, s->images, sizeof s->images, "wb")
                  : fixture_file(f, name, s->images, sizeof s->images);
}

/* Which image a row of features is, or -1. */
static int image_of(const float *features)
{
    for (int i = 0; i < N; i++) {
        int j = 0;
        while (j < N_IN && features[j] == (float)pixel_of(i, j) / 255.0f)
            j++;
        if (j == N_IN)
            return i;
    }
    return -1;
}

/* Collect a part's images; seen counts them. */
static void read_part(struct fixture *f, enum data_part part, int *seen)
{
    const struct data *d = f->data;
    float features[N_IN];
    int32_t target;
    struct batch_row row = {.features = features, .targets = &target};
    int before = -1;
    for (int64_t k = 0; k < d->n_samples[part]; k++) {
        d->ops->get(d, part, k, &row);
        CHECK(d->ops->n_valid(d, part, k) == 1);
        int i = image_of(features);
        CHECK(i > before && target == i % 5); /* file order within the part */
        before = i;
        if (i >= 0)
            seen[i]++;
    }
}

static void check_split(struct fixture *f, int64_t n_train, int64_t n_eval)
{
    int seen[N] = {0};
    CHECK(f->data->n_samples[DATA_TRAIN] == n_train && f->data->n_samples[DATA_EVAL] == n_eval);
    read_part(f, DATA_TRAIN, seen);
    read_part(f, DATA_EVAL, seen);
    for (int i = 0; i < N; i++)
        CHECK(seen[i] == 1);
}

static void test_good(struct fixture *f)
{
    struct sample_set s;
    char set[256];
    make_set(&s);
    CHECK(fixture_open(f, write_set(f, &s, "train", false), "", NULL, 0) == ERR_OK);
    CHECK(f->data->shape.kind == SAMPLE_CLASS && f->data->shape.n_in == N_IN);
    CHECK(f->data->shape.vocab == 5);
    check_split(f, 27, 3);
    CHECK(fixture_open(f, write_set(f, &s, "packed", true), "split=0.5|classes=10", NULL, 0) ==
          ERR_OK);
    CHECK(f->data->shape.vocab == 10);
    check_split(f, 15, 15);
    CHECK(fixture_open(f, write_set(f, &s, "train", false), "split=1", NULL, 0) == ERR_OK);
    check_split(f, N, 0);
    /* an evaluation set of its own: both whole */
    snprintf(set, sizeof set, "eval_path=%s", write_set(f, &s, "t10k", true));
    CHECK(fixture_open(f, write_set(f, &s, "train", false), set, NULL, 0) == ERR_OK);
    int train[N] = {0}, eval[N] = {0};
    read_part(f, DATA_TRAIN, train);
    read_part(f, DATA_EVAL, eval);
    for (int i = 0; i < N; i++)
        CHECK(train[i] == 1 && eval[i] == 1);
    /* labels of any name */
    char labels[128];
    snprintf(labels, sizeof labels, "labels=%s",
             fixture_file(f, "any.idx", s.labels, sizeof s.labels));
    CHECK(fixture_open(f, fixture_file(f, "images.idx", s.images, sizeof s.images), labels, NULL,
                       0) == ERR_OK);
}

static void expect(struct fixture *f, const char *path, const char *settings, int code,
                   const char *words)
{
    CHECK(fixture_open(f, path, settings, NULL, 0) == code);
    CHECK_HAS(err_text(), words);
}

struct poke {
    bool in_labels;
    int at, value;
    const char *words;
};

static const struct poke pokes[] = {
    {false, 0, 1, "-images-idx3-ubyte is no idx file: it must begin with two zero bytes"},
    {false, 2, 0x0D, "elements of type 0x0d"},
    {false, 3, 1, "has 1 dimensions, images have 2 to 4: are images and labels swapped?"},
    {false, 3, 5, "has 5 dimensions"},
    {false, 7, 31, "is truncated: its header says 279 bytes, 270 follow it"},
    {false, 7, 29, "is too long: its header says 261 bytes, 270 follow it"},
    {false, 7, 0, "dimension 1 is 0"},
    {false, 8, 255, "is truncated: its header says"},
    {true, 3, 3, "-labels-idx1-ubyte has 3 dimensions, labels have 1: are images"},
    {true, 7, 31, "-labels-idx1-ubyte is truncated"},
};

static void test_bad(struct fixture *f)
{
    struct sample_set s;
    for (size_t i = 0; i < sizeof pokes / sizeof *pokes; i++) {
        make_set(&s);
        (pokes[i].in_labels ? s.labels : s.images)[pokes[i].at] = (unsigned char)pokes[i].value;
        expect(f, write_set(f, &s, "bad", false), "", ERR_DATA, pokes[i].words);
    }
    make_set(&s);
    memset(s.images + 4, 255, 12); /* dimensions whose product is beyond 64 bits */
    expect(f, write_set(f, &s, "bad", false), "", ERR_DATA, "is truncated");
    make_set(&s);
    for (size_t cut = 0; cut < sizeof s.labels; cut++) {
        const char *path = write_set(f, &s, "bad", false);
        char images[128];
        snprintf(images, sizeof images, "%s", path);
        fixture_file(f, "bad-labels-idx1-ubyte", s.labels, cut);
        CHECK(fixture_open(f, images, "", NULL, 0) == ERR_DATA);
    }
    write_set(f, &s, "bad", false);
    s.labels[7] = 29;
    fixture_file(f, "bad-labels-idx1-ubyte", s.labels, sizeof s.labels - 1);
    expect(f, fixture_file(f, "bad-images-idx3-ubyte", s.images, sizeof s.images), "", ERR_DATA,
           "has 29 labels, but");
}

static void test_bad_keys(struct fixture *f)
{
    struct sample_set s;
    char set[300];
    make_set(&s);
    expect(f, write_set(f, &s, "a", false), "classes=4", ERR_DATA,
           "a-labels-idx1-ubyte: label 4 is 4, beyond classes = 4");
    expect(f, fixture_file(f, "images.idx", s.images, sizeof s.images), "", ERR_USAGE,
           "labels is not given, and the name has no images-idx3");
    expect(f, write_set(f, &s, "a", false), "labels=no/such", ERR_DATA, "cannot open no/such");
    expect(f, write_set(f, &s, "a", false), "eval_labels=x", ERR_USAGE, "without eval_path");
    snprintf(set, sizeof set, "split=0.5|eval_path=%s", write_set(f, &s, "b", false));
    expect(f, write_set(f, &s, "a", false), set, ERR_USAGE, "are two evaluation sets");
    expect(f, write_set(f, &s, "a", false), "split=0.01", ERR_DATA, "leaves none to train on");
    expect(f, write_set(f, &s, "a", false), "split=0", ERR_DATA, "leaves none to train on");
    expect(f, write_set(f, &s, "a", false), "split=0.99999", ERR_OK, ""); /* 29 and 1 */
    CHECK(f->data->n_samples[DATA_EVAL] == 1);
    snprintf(set, sizeof set, "eval_path=%s", write_set(f, &s, "b", false));
    s.images[11] = 9; /* 30 images of 9 by 1 pixels are fine, other sizes are not */
    s.images[15] = 1;
    expect(f, write_set(f, &s, "a", false), set, ERR_OK, "");
    s.images[7] = 27;
    s.images[11] = 10;
    s.labels[7] = 27;
    fixture_file(f, "a-labels-idx1-ubyte", s.labels, 8 + 27);
    expect(f, fixture_file(f, "a-images-idx3-ubyte", s.images, sizeof s.images), set, ERR_DATA,
           "has 9 pixels an image, but");
}

int main(void)
{
    struct fixture f;
    fixture_init(&f);
    TEST ("images, labels and splits as written")
        test_good(&f);
    TEST ("files that are no good")
        test_bad(&f);
    TEST ("keys that do not fit the files")
        test_bad_keys(&f);
    fixture_clear(&f);
    return check_done();
}
