/* CSV: the shipped files, spellings of a table, choice of task and classes, normalising by the
 * training rows, and a table of files that are no good.
 * RUN: -n 1 */
#include "data_fixture.h"

enum { MAX_ROWS = 2000, MAX_IN = 64 };

struct sample_row {
    float x[MAX_IN];
    int32_t target;
    float y[4];
};

static void get_row(const struct fixture *f, enum data_part part, int64_t i, struct sample_row *r)
{
    struct batch_row row = {.features = r->x, .targets = &r->target, .values = r->y};
    f->data->ops->get(f->data, part, i, &row);
}

/* How many rows of each class, both parts; the larger of the two shares of class 0 per part. */
static void count_classes(const struct fixture *f, int *count, int *in_eval)
{
    struct sample_row r;
    memset(count, 0, 10 * sizeof *count);
    memset(in_eval, 0, 10 * sizeof *in_eval);
    for (int part = DATA_TRAIN; part <= DATA_EVAL; part++)
        for (int64_t i = 0; i < f->data->n_samples[part]; i++) {
            get_row(f, (enum data_part)part, i, &r);
            CHECK(r.target >= 0 && r.target < f->data->shape.vocab);
            count[r.target]++;
            in_eval[r.target] += part == DATA_EVAL;
            CHECK(f->data->ops->n_valid(f->data, (enum data_part)part, i) == 1);
        }
}

static void test_digits(struct fixture *f)
{
    /* scikit-learn's own count of its digits */
    static const int want[] = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
    int count[10], in_eval[10];
    CHECK(fixture_open(f, "jobs/data/digits.csv.gz", "", NULL, 0) == ERR_OK);
    const struct sample_shape *s = &f->data->shape;
    CHECK(s->kind == SAMPLE_CLASS && s->vocab == 10 && s->n_in == 64);
    CHECK(f->data->n_samples[DATA_TRAIN] == 1437 && f->data->n_samples[DATA_EVAL] == 360);
    count_classes(f, count, in_eval);
    for (int c = 0; c < 10; c++)
        CHECK(count[c] == want[c] && in_eval[c] > 0);
    struct sample_row r;
    CHECK(fixture_open(f, "jobs/data/digits.csv.gz", "split=1", NULL, 0) == ERR_OK);
    get_row(f, DATA_TRAIN, 0, &r);
    CHECK(r.x[2] == 5 && r.x[3] == 13 && r.x[63] == 0 && r.target == 0);
    CHECK_STR(f->data->classes[9], "9");
}

/* The flowers read by another reader: four numbers and a class a line. */
static int read_iris(double x[150][4], int *species)
{
    FILE *file = fopen("jobs/data/iris.csv", "r");
    char head[100];
    int n = 0;
    if (!file || !fgets(head, sizeof head, file))
        return 0;
    while (n < 150 && fscanf(file, "%lf,%lf,%lf,%lf,%d", &x[n][0], &x[n][1], &x[n][2], &x[n][3],
                             &species[n]) == 5)
        n++;
    fclose(file);
    return n;
}

static void test_iris(struct fixture *f)
{
    int count[10], in_eval[10], species[150];
    double x[150][4];
    struct sample_row r;
    CHECK(read_iris(x, species) == 150);
    CHECK(fixture_open(f, "jobs/data/iris.csv", "", NULL, 0) == ERR_OK);
    CHECK(f->data->shape.vocab == 3 && f->data->shape.n_in == 4);
    CHECK(f->data->n_samples[DATA_TRAIN] == 120 && f->data->n_samples[DATA_EVAL] == 30);
    count_classes(f, count, in_eval);
    for (int c = 0; c < 3; c++) /* a file sorted by species is no trap */
        CHECK(count[c] == 50 && in_eval[c] >= 3 && in_eval[c] <= 20);
    CHECK(fixture_open(f, "jobs/data/iris.csv", "split=1", NULL, 0) == ERR_OK);
    for (int i = 0; i < 150; i++) {
        get_row(f, DATA_TRAIN, i, &r);
        CHECK(r.target == species[i]);
        for (int j = 0; j < 4; j++)
            CHECK(r.x[j] == (float)x[i][j]);
    }
}

/* Mean and deviation, or range, of the training rows alone; the others by the same measure. */
static void test_normalize(struct fixture *f)
{
    static struct sample_row raw[2][150], got;
    CHECK(fixture_open(f, "jobs/data/iris.csv", "", NULL, 0) == ERR_OK);
    int64_t n[] = {f->data->n_samples[0], f->data->n_samples[1]};
    for (int part = 0; part < 2; part++)
        for (int64_t i = 0; i < n[part]; i++)
            get_row(f, (enum data_part)part, i, &raw[part][i]);
    for (int how = 0; how < 2; how++) {
        const char *set = how ? "normalize=minmax" : "normalize=standard";
        CHECK(fixture_open(f, "jobs/data/iris.csv", set, NULL, 0) == ERR_OK);
        for (int j = 0; j < 4; j++) {
            double sum = 0, squares = 0, low = 1e9, high = -1e9;
            for (int64_t i = 0; i < n[0]; i++) {
                double v = raw[0][i].x[j];
                sum += v;
                squares += v * v;
                low = fmin(low, v);
                high = fmax(high, v);
            }
            double mean = sum / (double)n[0], var = squares / (double)n[0] - mean * mean;
            double shift = how ? low : mean, scale = how ? high - low : sqrt(var);
            for (int part = 0; part < 2; part++)
                for (int64_t i = 0; i < n[part]; i++) {
                    get_row(f, (enum data_part)part, i, &got);
                    CHECK_NEAR(got.x[j], (raw[part][i].x[j] - shift) / scale, 1e-5);
                }
        }
    }
    const char *path = fixture_file(f, "c.csv", "0.1,1,a\n0.1,2,b\n0.1,4,a\n", 24);
    for (int how = 0; how < 2; how++) { /* a constant column becomes 0, not NaN */
        const char *set = how ? "split=1|normalize=minmax" : "split=1|normalize=standard";
        CHECK(fixture_open(f, path, set, NULL, 0) == ERR_OK);
        get_row(f, DATA_TRAIN, 2, &got);
        CHECK(got.x[0] == 0 && got.x[1] > 0.9f);
    }
}

/* A small table in many spellings: always features (1, 2), (3, 4.5), (-5, 6), classes u, v, u. */
struct spelling {
    const char *text, *settings;
};

static const struct spelling spellings[] = {
    {"1,2,u\n3,4.5,v\n-5,6,u\n", ""},
    {"1,2,u\n3,4.5,v\n-5,6,u", ""},
    {"1,2,u\r\n3,4.5,v\r\n-5,6,u\r\n", ""},
    {"\n1,2,u\n\n3,4.5,v\n  \n-5,6,u\n\n", ""},
    {"\xEF\xBB\xBF"
     "1,2,u\n3,4.5,v\n-5,6,u\n",
     ""},
    {" 1 ,\t2, u \n3,4.50e0,\tv\n-5.0,+6,u\n", ""},
    {"\"1\",\"2\",\"u\"\n3, \"4.5\" ,v\n-5,6,u\n", ""},
    {"a,b,c\n1,2,u\n3,4.5,v\n-5,6,u\n", ""},
    {"a,b,c\n1,2,u\n3,4.5,v\n-5,6,u\n", "header=true"},
    {"\"a, or \"\"A\"\"\",\"b\nb\",c\n1,2,u\n3,4.5,v\n-5,6,u\n", "targets=c"},
    {"1;2;u\n3;4.5;v\n-5;6;u\n", "delimiter=semicolon"},
    {"1\t2\tu\n3\t4.5\tv\n-5\t6\tu\n", "delimiter=tab"},
    {"u,1,2\nv,3,4.5\nu,-5,6\n", "targets=1"},
    {"1,u,2\n3,v,4.5\n-5,u,6\n", "targets=2|header=false"},
    {"a,k,b\n1,u,2\n3,v,4.5\n-5,u,6\n", "targets=k"},
    {"2020,99,b\n1,u,2\n3,v,4.5\n-5,u,6\n", "targets=99"},
    {"1,2,7\n3,4.5,11\n-5,6,7\n", ""},
    {"1,2,7.5\n3,4.5,11\n-5,6,7.50\n", "task=classification"},
    {"1,2,0\n3,4.5,x\n-5,6,0\n", "task=classification"},
};

static void test_spellings(struct fixture *f)
{
    static const float want[3][2] = {{1, 2}, {3, 4.5f}, {-5, 6}};
    struct sample_row r;
    for (size_t k = 0; k < sizeof spellings / sizeof *spellings; k++) {
        char set[64];
        snprintf(set, sizeof set, "split=1|%s", spellings[k].settings);
        const char *text = spellings[k].text;
        const char *path = fixture_file(f, "t.csv", text, strlen(text));
        int rc = fixture_open(f, path, set, NULL, 0);
        check_that(rc == ERR_OK, __FILE__, __LINE__, "spelling %zu: %s", k, err_text());
        if (rc != ERR_OK)
            continue;
        CHECK(f->data->shape.kind == SAMPLE_CLASS && f->data->shape.vocab == 2);
        CHECK(f->data->shape.n_in == 2 && f->data->n_samples[DATA_TRAIN] == 3);
        for (int i = 0; i < 3; i++) {
            get_row(f, DATA_TRAIN, i, &r);
            check_that(r.x[0] == want[i][0] && r.x[1] == want[i][1] && r.target == i % 2, __FILE__,
                       __LINE__, "spelling %zu, row %d", k, i);
        }
    }
}

static void test_classes(struct fixture *f)
{
    struct sample_row r;
    const char *path = fixture_file(f, "n.csv", "1,10\n2,9\n3,100\n4,9.0\n", 21);
    CHECK(fixture_open(f, path, "split=1", NULL, 0) == ERR_OK);
    CHECK(f->data->shape.vocab == 3); /* numbers by value: 9, 10, 100 */
    static const int32_t want[] = {1, 0, 2, 0};
    for (int i = 0; i < 4; i++) {
        get_row(f, DATA_TRAIN, i, &r);
        CHECK(r.target == want[i]);
    }
    CHECK_STR(f->data->classes[1], "10");
    const char *text = "1,virginica\n2,setosa\n3,\"a \"\"b\"\", c\"\n";
    path = fixture_file(f, "s.csv", text, strlen(text));
    CHECK(fixture_open(f, path, "split=1", NULL, 0) == ERR_OK);
    CHECK_STR(f->data->classes[0], "a \"b\", c");
    CHECK_STR(f->data->classes[2], "virginica");
    CHECK(f->data->classes[3] == NULL);
}

static void test_regression(struct fixture *f)
{
    struct sample_row r;
    const char *text = "x,a,y,b\n1,2.5,3,-4\n5,6,7,8\n";
    const char *path = fixture_file(f, "r.csv", text, strlen(text));
    CHECK(fixture_open(f, path, "split=1|targets=b,a", NULL, 0) == ERR_OK);
    CHECK(f->data->shape.kind == SAMPLE_REGRESSION);
    CHECK(f->data->shape.n_in == 2 && f->data->shape.n_out == 2 && !f->data->classes);
    get_row(f, DATA_TRAIN, 0, &r);
    CHECK(r.x[0] == 1 && r.x[1] == 3 && r.y[0] == -4 && r.y[1] == 2.5f);
    CHECK(f->data->ops->n_valid(f->data, DATA_TRAIN, 0) == 2);
    static const char *const auto_regression[] = {"1,0.5\n2,1\n", "1,-1\n2,0\n", "1,256\n2,0\n"};
    for (int i = 0; i < 3; i++) {
        path = fixture_file(f, "r.csv", auto_regression[i], strlen(auto_regression[i]));
        CHECK(fixture_open(f, path, "split=1", NULL, 0) == ERR_OK);
        CHECK(f->data->shape.kind == SAMPLE_REGRESSION && f->data->shape.n_out == 1);
    }
    path = fixture_file(f, "r.csv", "1,0\n2,1\n", 8);
    CHECK(fixture_open(f, path, "split=1|task=regression", NULL, 0) == ERR_OK);
    CHECK(f->data->shape.kind == SAMPLE_REGRESSION);
}

/* Every row is in one part, in file order, and the seed decides which. */
static void test_split(struct fixture *f)
{
    struct text t = {0};
    for (int i = 0; i < 200; i++)
        text_printf(&t, "%d,%d\n", i, i % 2);
    const char *path = fixture_file(f, "s.csv", t.s, t.n_bytes);
    text_clear(&t);
    struct sample_row r;
    int seen[200] = {0}, eval_sum = 0;
    CHECK(fixture_open(f, path, "split=0.7", NULL, 0) == ERR_OK);
    CHECK(f->data->n_samples[0] == (int64_t)(200 * 0.7));
    for (int part = 0; part < 2; part++) {
        float before = -1;
        for (int64_t i = 0; i < f->data->n_samples[part]; i++) {
            get_row(f, (enum data_part)part, i, &r);
            CHECK(r.x[0] > before);
            before = r.x[0];
            seen[(int)r.x[0]]++;
            eval_sum += part ? (int)r.x[0] : 0;
        }
    }
    for (int i = 0; i < 200; i++)
        CHECK(seen[i] == 1);
    /* 60 of 0 … 199: mean 99.5, deviation of the mean 6.2 */
    CHECK_NEAR(eval_sum / 60.0, 99.5, 25);
    struct rows a, b, c;
    CHECK(rows_split("x", 1, 200, 0.7, &a) == ERR_OK && rows_split("x", 1, 200, 0.7, &b) == ERR_OK);
    CHECK(rows_split("x", 2, 200, 0.7, &c) == ERR_OK);
    CHECK(memcmp(a.at[1], b.at[1], 60 * sizeof(int64_t)) == 0);
    CHECK(memcmp(a.at[1], c.at[1], 60 * sizeof(int64_t)) != 0);
    rows_clear(&a);
    rows_clear(&b);
    rows_clear(&c);
}

struct bad {
    const char *text, *settings;
    int code;
    const char *words;
};

static const struct bad bad_files[] = {
    {"", "", ERR_DATA, "/bad.csv is empty"},
    {"\n \n", "", ERR_DATA, "/bad.csv is empty"},
    {"a,b\n", "header=true", ERR_DATA, "/bad.csv has a header and no rows"},
    {"a,b\n", "", ERR_DATA, "/bad.csv:1: column 1: 'a' is not a number"},
    {"1,2,3\n4,5\n", "", ERR_DATA, "/bad.csv:2: 2 columns, but the first line has 3"},
    {"1,2\n\n4,5,6\n", "", ERR_DATA, "/bad.csv:3: 3 columns, but the first line has 2"},
    {"1,2\n4,5,\n", "", ERR_DATA, "/bad.csv:2: 3 columns"},
    {"x,y\n1,2\n,5\n", "", ERR_DATA, "/bad.csv:3: column 1 (x): '' is empty"},
    {"x,y\n1,2\n3,\n", "", ERR_DATA, "/bad.csv:3: column 2 (y): '' is empty"},
    {"x,y\n1,2\nab,5\n", "", ERR_DATA, "/bad.csv:3: column 1 (x): 'ab' is not a number"},
    {"x,y\n1,2\n3 4,5\n", "", ERR_DATA, "'3 4' is not a number"},
    {"x,y\n1,2\n0x10,5\n", "", ERR_DATA, "'0x10' is not a number"},
    {"x,y\n1,2\n1.5.2,5\n", "", ERR_DATA, "'1.5.2' is not a number"},
    {"x,y\n1,2\n1e,5\n", "", ERR_DATA, "'1e' is not a number"},
    {"1,2\nnan,5\n", "", ERR_DATA, "/bad.csv:2: column 1: 'nan' is not a finite number"},
    {"1,2\n-Inf,5\n", "", ERR_DATA, "'-Inf' is not a finite number"},
    {"1,2\n3,NaN\n", "", ERR_DATA, "column 2: 'NaN' is not a finite number"},
    {"1,2\n1e999,5\n", "", ERR_DATA, "'1e999' is not a finite number"},
    {"1,2\n1e39,5\n", "", ERR_DATA, "/bad.csv:2: column 1: '1e39' is beyond a 32-bit float"},
    {"1,2\n1,1e39\n", "", ERR_DATA, "/bad.csv:2: column 2: '1e39' is beyond a 32-bit float"},
    {"1,a\n2,3\n4,b\n", "header=false", ERR_DATA,
     "/bad.csv:1: column 2: 'a' is text in a target column that has numbers too"},
    {"1,a\n2,b\n", "task=regression", ERR_DATA, "/bad.csv:1: column 2: 'a' is not a number, as a"},
    {"1,2,3\n4,5,x\n", "targets=2,3", ERR_DATA, "/bad.csv:2: column 3: 'x' is not a number, as a"},
    {"1,a\n2,a\n", "", ERR_DATA, "column 2 is 'a' in every row"},
    {"1,\"a\n2,b\n", "", ERR_DATA, "/bad.csv:1: a quote is opened and never closed"},
    {"1,\"a\"b\n2,c\n", "", ERR_DATA, "/bad.csv:1: text behind a closing quote: 'b"},
    {"1;2\n3;4\n", "", ERR_DATA, "has one column, and that is the target: is the delimiter"},
    {"1,2\n3,4\n", "targets=1,2", ERR_USAGE, "all 2 columns are targets"},
    {"1,2,3\n4,5,6\n", "targets=1,1", ERR_USAGE, "targets name column 1 twice"},
    {"1,2\n3,4\n", "targets=3", ERR_USAGE,
     "targets = 3: the file has columns 1 … 2, and no header"},
    {"1,2\n3,4\n", "targets=0", ERR_USAGE, "targets = 0: "},
    {"length,species\n1,2\n", "targets=specis", ERR_USAGE, "the nearest is species"},
    {"length,species\n1,2\n", "targets=qqqqqqqq", ERR_USAGE,
     "no column has this name or number; they are length, species"},
    {"x,x,y\n1,2,3\n", "targets=x", ERR_USAGE, "columns 1 and 2 have this name"},
    {"1,2,3\n4,5,6\n", "targets=1,2|task=classification", ERR_USAGE,
     "has one target column, not 2"},
    {"1,2\n", "task=regression", ERR_DATA, "split = 0.8 of 1 samples leaves none to train on"},
    {"1,2\n3,4\n", "split=0", ERR_DATA, "leaves none to train on"},
};

static void test_bad(struct fixture *f)
{
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        const struct bad *b = &bad_files[i];
        const char *path = fixture_file(f, "bad.csv", b->text, strlen(b->text));
        int rc = fixture_open(f, path, b->settings, NULL, 0);
        check_that(rc == b->code, __FILE__, __LINE__, "case %zu: %d", i, rc);
        CHECK_HAS(err_text(), b->words);
    }
    const char *path = fixture_file(f, "bad.csv", "1,2\n\0", 5);
    CHECK(fixture_open(f, path, "", NULL, 0) == ERR_DATA);
    CHECK_HAS(err_text(), "/bad.csv has a NUL byte");
    CHECK(fixture_open(f, "no/such.csv", "", NULL, 0) == ERR_DATA);
    CHECK_HAS(err_text(), "cannot open no/such.csv");
    char *packed;
    size_t n;
    CHECK(file_read("jobs/data/digits.csv.gz", 1 << 20, ERR_DATA, &packed, &n) == ERR_OK);
    path = fixture_file(f, "cut.csv.gz", packed, n / 2);
    CHECK(fixture_open(f, path, "", NULL, 0) == ERR_DATA);
    CHECK_HAS(err_text(), "cut.csv.gz is truncated");
    packed[n / 2] = (char)~packed[n / 2];
    path = fixture_file(f, "bad.csv.gz", packed, n);
    CHECK(fixture_open(f, path, "", NULL, 0) == ERR_DATA);
    CHECK_HAS(err_text(), "bad.csv.gz is damaged");
    free(packed);
}

/* A second file, read like the first: settings are of both, but for its own. */
static int open_like(struct fixture *g, const struct fixture *f, const char *rows,
                     const char *settings)
{
    g->like = f->data;
    return fixture_open(g, fixture_file(g, "val.csv", rows, strlen(rows)), settings, NULL, 0);
}

static void test_like(struct fixture *f)
{
    static const char rows[] = "0,red\n2,green\n4,blue\n2,red\n";
    struct fixture g;
    struct sample_row r;
    fixture_init(&g);
    CHECK(fixture_open(f, fixture_file(f, "train.csv", rows, sizeof rows - 1),
                       "split=1|normalize=minmax", NULL, 0) == ERR_OK);
    CHECK(open_like(&g, f, "8,red\n2,green\n", "split=1") == ERR_OK);
    CHECK(g.data->shape.vocab == 3);
    CHECK_STR(g.data->classes[2], "red");
    get_row(&g, DATA_TRAIN, 0, &r);
    CHECK(r.target == 2 && r.x[0] == 2.0f);
    get_row(&g, DATA_TRAIN, 1, &r);
    CHECK(r.target == 1 && r.x[0] == 0.5f);
    CHECK(open_like(&g, f, "8,red\n2,pink\n", "split=1") == ERR_DATA);
    CHECK_HAS(err_text(), "val.csv:2: column 2: 'pink' is none of the classes");
    CHECK(open_like(&g, f, "8,1,red\n2,1,blue\n", "split=1") == ERR_DATA);
    CHECK_HAS(err_text(), "has 2 features, and ");
    CHECK(open_like(&g, f, "8,red\n", "split=1|normalize=standard") == ERR_USAGE);
    CHECK_HAS(err_text(), "normalize = standard");
    CHECK(open_like(&g, f, "8,red\n", "split=1|normalize=minmax") == ERR_OK);

    static const char numbers[] = "0,7\n2,9\n4,8\n";
    CHECK(fixture_open(f, fixture_file(f, "train.csv", numbers, sizeof numbers - 1), "split=1",
                       NULL, 0) == ERR_OK);
    CHECK(open_like(&g, f, "1,9.0\n1,8\n", "split=1") == ERR_OK);
    get_row(&g, DATA_TRAIN, 0, &r);
    CHECK(r.target == 2 && r.x[0] == 1.0f);
    CHECK(open_like(&g, f, "1,8x\n", "split=1") == ERR_DATA);
    CHECK_HAS(err_text(), "'8x' is none of the classes");

    static const char values[] = "0,7.5\n2,9\n4,8\n";
    CHECK(fixture_open(f, fixture_file(f, "train.csv", values, sizeof values - 1), "split=1", NULL,
                       0) == ERR_OK);
    CHECK(open_like(&g, f, "1,9\n1,8\n", "split=1") == ERR_OK);
    CHECK(g.data->shape.kind == SAMPLE_REGRESSION);
    fixture_clear(&g);
}

/* Cut a good file at every byte: read, or refused with the file's name, and never worse. */
static void test_cuts(struct fixture *f)
{
    static const char text[] =
        "\"a\"\"\",\"b\nb\",c\r\n1,\"2\",u\r\n\"3\",4,v\r\n5,\" 6\",\"w,\"\r\n";
    for (size_t n = 0; n < sizeof text; n++) {
        const char *path = fixture_file(f, "cut.csv", text, n);
        if (fixture_open(f, path, "split=1", NULL, 0) == ERR_OK)
            CHECK(f->data->shape.n_in == 2);
        else
            CHECK_HAS(err_text(), "/cut.csv");
    }
}

int main(void)
{
    struct fixture f;
    fixture_init(&f);
    TEST ("digits: packed, no header, its known classes")
        test_digits(&f);
    TEST ("iris: numbers as another reader has them, drawn evenly")
        test_iris(&f);
    TEST ("normalising looks at the training rows alone")
        test_normalize(&f);
    TEST ("one table, many spellings")
        test_spellings(&f);
    TEST ("classes are numbered in sorted order and keep their names")
        test_classes(&f);
    TEST ("data to evaluate on has the classes and the scale of what is trained on")
        test_like(&f);
    TEST ("regression: several targets in the order asked for")
        test_regression(&f);
    TEST ("the split puts every row in one part, by the seed")
        test_split(&f);
    TEST ("files and keys that are no good")
        test_bad(&f);
    TEST ("a file cut anywhere is refused in words or read")
        test_cuts(&f);
    fixture_clear(&f);
    return check_done();
}
