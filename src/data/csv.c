/* CSV as samples: columns of numbers in, a class or some values out.  The split is drawn by the
 * seed, and features are normalised by what the training rows alone say. */
#include "data/csv_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AUTO_CLASS_MAX = 255 };

struct csv_state {
    float *feature;    /* (n, n_in), owned */
    int32_t *class_of; /* (n), owned, or NULL */
    float *value;      /* (n, n_out), owned, or NULL */
    struct rows rows;  /* owned */
    bool numeric;      /* classes are numbers, not texts */
    int how;           /* enum csv_normalize */
    double *shift;     /* (2, n_in), owned: of each feature, then its scale; NULL: not normalised */
};

static const char *const task_words[] = {"auto", "classification", "regression", NULL};
static const char *const header_words[] = {"auto", "true", "false", NULL};
static const char *const delimiter_words[] = {"comma", "semicolon", "tab", NULL};
static const char *const normalize_words[] = {"none", "standard", "minmax", NULL};

static const struct opt csv_opts[] = {
    STRS(csv_conf, targets, NULL,
         "columns to predict, by number from 1 or by name; not given: the last one"),
    ENUM(csv_conf, task, "auto", task_words,
         "auto: classification if one target is text or whole numbers 0 … 255 only"),
    ENUM(csv_conf, header, "auto", header_words,
         "whether the first line names the columns; auto: if it has text above a number"),
    ENUM(csv_conf, delimiter, "comma", delimiter_words, "what stands between two cells"),
    ENUM(csv_conf, normalize, "none", normalize_words,
         "features by the training rows: to mean 0 and deviation 1, or to 0 … 1"),
    {.type = OPT_END},
};

struct label {
    const char *text;
    double v; /* where it is a number */
    bool is_number;
};

static struct label label_of(const char *text)
{
    struct label l = {.text = text};
    l.is_number = csv_parse(text, &l.v) == CSV_NUMBER;
    return l;
}

static int by_number(const void *a, const void *b)
{
    double x = ((const struct label *)a)->v, y = ((const struct label *)b)->v;
    return (x > y) - (x < y);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct label *)a)->text, ((const struct label *)b)->text);
}

/* What the one target column holds. */
struct target_kind {
    bool numbers, texts, small_integers;
    int64_t first_text; /* a row */
};

static struct target_kind look_at_target(const struct csv_table *t)
{
    struct target_kind k = {.small_integers = true};
    for (int64_t i = 0; i < t->n; i++) {
        double v;
        if (csv_parse(t->target[i], &v) != CSV_NUMBER) {
            if (!k.texts)
                k.first_text = i;
            k.texts = true;
            k.small_integers = false;
        } else {
            k.numbers = true;
            k.small_integers &= v >= 0 && v <= AUTO_CLASS_MAX && v == floor(v);
        }
    }
    return k;
}

/* The distinct labels in sorted order. */
static int list_classes(struct data *d, const struct csv_table *t)
{
    const struct csv_state *s = d->state;
    int (*order)(const void *, const void *) = s->numeric ? by_number : by_text;
    struct label *all = calloc((size_t)t->n, sizeof *all);
    if (!all)
        FAIL(ERR_RESOURCE, "no memory for the %lld labels of %s", (long long)t->n, d->conf->path);
    for (int64_t i = 0; i < t->n; i++)
        all[i] = label_of(t->target[i]);
    qsort(all, (size_t)t->n, sizeof *all, order);
    int64_t n = 1;
    for (int64_t i = 1; i < t->n; i++)
        if (order(&all[n - 1], &all[i]) != 0)
            all[n++] = all[i];
    const char **names = arena_alloc(d->arena, ((size_t)n + 1) * sizeof *names);
    for (int64_t c = 0; c < n; c++)
        names[c] = arena_strdup(d->arena, all[c].text);
    free(all);
    if (n < 2)
        FAIL(ERR_DATA, "%s: column %d is '%s' in every row: there is nothing to classify",
             d->conf->path, t->column[0] + 1, names[0]);
    d->classes = names;
    d->shape.vocab = n;
    return ERR_OK;
}

/* Each row's label as the number of its class. */
static int number_labels(struct data *d, const struct csv_table *t)
{
    struct csv_state *s = d->state;
    int (*order)(const void *, const void *) = s->numeric ? by_number : by_text;
    size_t n = (size_t)d->shape.vocab;
    struct label *all = calloc(n, sizeof *all);
    s->class_of = calloc((size_t)t->n, sizeof *s->class_of);
    int rc = all && s->class_of ? ERR_OK
                                : err_set(ERR_RESOURCE, "no memory for the %lld labels of %s",
                                          (long long)t->n, d->conf->path);
    for (size_t c = 0; rc == ERR_OK && c < n; c++)
        all[c] = label_of(d->classes[c]);
    for (int64_t i = 0; rc == ERR_OK && i < t->n; i++) {
        struct label l = label_of(t->target[i]);
        const struct label *at = bsearch(&l, all, n, sizeof l, order);
        if (!at || (s->numeric && !l.is_number))
            rc = csv_cell_error(t, t->line[i], t->column[0], l.text,
                                "is none of the classes of the training data");
        else
            s->class_of[i] = (int32_t)(at - all);
    }
    free(all);
    return rc;
}

static int make_classes(struct data *d, const struct csv_table *t, bool numeric)
{
    struct csv_state *s = d->state;
    s->numeric = numeric;
    d->shape.kind = SAMPLE_CLASS;
    if (d->like) {
        d->classes = d->like->classes;
        d->shape.vocab = d->like->shape.vocab;
    } else {
        TRY(list_classes(d, t));
    }
    return number_labels(d, t);
}

static int make_values(struct data *d, const struct csv_table *t)
{
    struct csv_state *s = d->state;
    s->value = calloc((size_t)t->n * (size_t)t->n_targets, sizeof *s->value);
    if (!s->value)
        FAIL(ERR_RESOURCE, "no memory for the targets of %s", d->conf->path);
    for (int64_t i = 0; i < t->n * t->n_targets; i++) {
        double v;
        int64_t line = t->line[i / t->n_targets];
        int column = t->column[i % t->n_targets];
        if (csv_parse(t->target[i], &v) != CSV_NUMBER)
            return csv_cell_error(t, line, column, t->target[i],
                                  "is not a number, as a regression target must be");
        if (fabs(v) > FLT_MAX)
            return csv_cell_error(t, line, column, t->target[i], "is beyond a 32-bit float");
        s->value[i] = (float)v;
    }
    d->shape.kind = SAMPLE_REGRESSION;
    d->shape.n_out = t->n_targets;
    return ERR_OK;
}

/* As the source that this one is like has them, whatever this one's own values look like. */
static int make_targets_like(struct data *d, const struct csv_table *t)
{
    const struct csv_state *like = d->like->state;
    if (d->like->shape.kind != SAMPLE_CLASS)
        return make_values(d, t);
    if (t->n_targets > 1)
        FAIL(ERR_USAGE, "%s: %d target columns, and %s has classes: one column", d->conf->path,
             t->n_targets, d->like->conf->path);
    return make_classes(d, t, like->numeric);
}

static int make_targets(struct data *d, const struct csv_table *t, const struct csv_conf *c)
{
    if (d->like)
        return make_targets_like(d, t);
    if (c->task == CSV_TASK_REGRESSION || (c->task == CSV_TASK_AUTO && t->n_targets > 1))
        return make_values(d, t);
    if (t->n_targets > 1)
        FAIL(ERR_USAGE, "%s: task = classification has one target column, not %d", d->conf->path,
             t->n_targets);
    struct target_kind k = look_at_target(t);
    if (c->task == CSV_TASK_CLASS)
        return make_classes(d, t, !k.texts);
    if (k.texts && k.numbers)
        return csv_cell_error(t, t->line[k.first_text], t->column[0], t->target[k.first_text],
                              "is text in a target column that has numbers too: correct it, or "
                              "say task = classification");
    return k.texts || k.small_integers ? make_classes(d, t, !k.texts) : make_values(d, t);
}

/* shift and scale of every feature, from the training rows. */
static void measure(const struct csv_state *s, int64_t n_in, int how, double *shift, double *scale)
{
    int64_t n = s->rows.n[DATA_TRAIN];
    for (int64_t f = 0; f < n_in; f++) {
        double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            double v = s->feature[rows_at(&s->rows, DATA_TRAIN, i) * n_in + f];
            low = v < low ? v : low;
            high = v > high ? v : high;
            sum += v;
        }
        double mean = sum / (double)n;
        for (int64_t i = 0; i < n; i++) {
            double v = s->feature[rows_at(&s->rows, DATA_TRAIN, i) * n_in + f] - mean;
            squares += v * v;
        }
        double width = how == CSV_STANDARD ? sqrt(squares / (double)n) : high - low;
        shift[f] = how == CSV_STANDARD ? mean : low;
        scale[f] = low < high && width > 0 ? width : 1; /* a constant column becomes 0 */
        if (low == high)
            shift[f] = low; /* exactly, where the mean is off by a rounding */
    }
}

static int normalize(struct data *d, const struct csv_table *t)
{
    struct csv_state *s = d->state;
    int64_t n_in = d->shape.n_in;
    s->shift = calloc((size_t)n_in * 2, sizeof *s->shift);
    if (!s->shift)
        FAIL(ERR_RESOURCE, "no memory to normalise %s", d->conf->path);
    double *shift = s->shift, *scale = shift + n_in;
    if (d->like)
        memcpy(shift, ((const struct csv_state *)d->like->state)->shift,
               (size_t)n_in * 2 * sizeof *shift);
    else
        measure(s, n_in, s->how, shift, scale);
    int rc = ERR_OK;
    for (int64_t i = 0; rc == ERR_OK && i < t->n * n_in; i++) {
        int64_t f = i % n_in;
        double v = (s->feature[i] - shift[f]) / scale[f];
        s->feature[i] = (float)v;
        if (fabs(v) > FLT_MAX)
            rc = csv_cell_error(t, t->line[i / n_in], csv_feature_column(t, f), "",
                                "is beyond a 32-bit float once it is normalised");
    }
    return rc;
}

/* Features that are to be scaled as another source's are: it decides how. */
static int check_like(struct data *d, const struct csv_conf *c)
{
    struct csv_state *s = d->state;
    const struct csv_state *like = d->like ? d->like->state : NULL;
    s->how = like ? like->how : c->normalize;
    if (!like)
        return ERR_OK;
    if (d->shape.n_in != d->like->shape.n_in)
        FAIL(ERR_DATA, "%s has %lld features, and %s has %lld", d->conf->path,
             (long long)d->shape.n_in, d->like->conf->path, (long long)d->like->shape.n_in);
    if (c->normalize != CSV_NONE && c->normalize != like->how)
        FAIL(ERR_USAGE,
             "%s: normalize = %s, but what is trained on, %s, has %s: the scale is that "
             "of the training rows",
             d->conf->path, normalize_words[c->normalize], d->like->conf->path,
             normalize_words[like->how]);
    return ERR_OK;
}

static int build(struct data *d, struct csv_table *t, const struct csv_conf *c)
{
    struct csv_state *s = d->state;
    TRY(csv_table_read(t, d->conf->path, c, d->arena));
    d->shape.n_in = t->n_cols - t->n_targets;
    TRY(check_like(d, c));
    TRY(make_targets(d, t, c));
    TRY(rows_split(d->conf->path, d->seed, t->n, data_share(d->conf, 0.8), &s->rows));
    s->feature = t->feature;
    t->feature = NULL;
    return s->how == CSV_NONE ? ERR_OK : normalize(d, t);
}

static int csv_open(struct data *d, const void *conf)
{
    if (!(d->state = calloc(1, sizeof(struct csv_state))))
        FAIL(ERR_RESOURCE, "no memory for a data source");
    struct csv_table t = {0};
    int rc = build(d, &t, conf);
    csv_table_clear(&t);
    return rc;
}

static int csv_cut(struct data *d, int64_t T)
{
    const struct csv_state *s = d->state;
    (void)T;
    d->n_samples[DATA_TRAIN] = s->rows.n[DATA_TRAIN];
    d->n_samples[DATA_EVAL] = s->rows.n[DATA_EVAL];
    return ERR_OK;
}

static int64_t csv_n_valid(const struct data *d, enum data_part part, int64_t i)
{
    REQUIRE(i >= 0 && i < d->n_samples[part]);
    return d->shape.kind == SAMPLE_CLASS ? 1 : d->shape.n_out;
}

static void csv_get(const struct data *d, enum data_part part, int64_t i,
                    const struct batch_row *row)
{
    const struct csv_state *s = d->state;
    REQUIRE(i >= 0 && i < d->n_samples[part]);
    int64_t r = rows_at(&s->rows, part, i), n_in = d->shape.n_in, n_out = d->shape.n_out;
    memcpy(row->features, s->feature + r * n_in, (size_t)n_in * sizeof(float));
    if (s->class_of)
        row->targets[0] = s->class_of[r];
    else
        memcpy(row->values, s->value + r * n_out, (size_t)n_out * sizeof(float));
}

static void csv_close(struct data *d)
{
    struct csv_state *s = d->state;
    free(s->feature);
    free(s->class_of);
    free(s->value);
    free(s->shift);
    rows_clear(&s->rows);
    free(s);
}

static const char *const csv_suffixes[] = {".csv", NULL};

const struct data_ops csv_ops = {
    .name = "csv",
    .suffixes = csv_suffixes,
    .opts = csv_opts,
    .conf_bytes = sizeof(struct csv_conf),
    .open = csv_open,
    .cut = csv_cut,
    .n_valid = csv_n_valid,
    .get = csv_get,
    .close = csv_close,
};
