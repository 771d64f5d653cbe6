/* IDX, the format of MNIST: big-endian dimensions, then one byte a pixel or label.
 * http://yann.lecun.com/exdb/mnist describes it.  Only unsigned bytes are read. */
#include "data/data_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct idx_conf {
    const char *labels, *eval_path, *eval_labels;
    int64_t classes;
};

struct idx_set {
    char *images, *labels;          /* owned: the files */
    const unsigned char *pixel;     /* (n, n_in), in images */
    const unsigned char *label;     /* (n), in labels */
    const char *path, *labels_path; /* in the arena */
    int64_t n, n_in;
};

struct idx_state {
    struct idx_set set[2]; /* the second only with eval_path */
    struct rows rows;      /* of set[0] */
    bool own_eval;
};

static const struct opt idx_opts[] = {
    STR_PATH(idx_conf, labels, NULL,
             "file of the labels; not given: path with labels-idx1 for its images-idx3"),
    STR_PATH(idx_conf, eval_path, NULL, "images to evaluate on, then all of path is trained on"),
    STR_PATH(idx_conf, eval_labels, NULL, "their labels; not given: as for labels"),
    I64_AUTO(idx_conf, classes, "auto", 2, 256, "number of classes; auto: the largest label + 1"),
    {.type = OPT_END},
};

/* Read one file: *body its bytes behind the header, dim its dimensions. */
static int read_idx(const char *path, int min_dims, int max_dims, char **file,
                    const unsigned char **body, int64_t dim[4])
{
    size_t n_bytes;
    TRY(data_read(path, file, &n_bytes));
    const unsigned char *b = (const unsigned char *)*file;
    if (n_bytes < 4 || b[0] != 0 || b[1] != 0)
        FAIL(ERR_DATA, "%s is no idx file: %s", path,
             n_bytes < 4 ? "it has fewer than 4 bytes" : "it must begin with two zero bytes");
    if (b[2] != 8)
        FAIL(ERR_DATA, "%s: elements of type 0x%02x; only 0x08, unsigned bytes, are read", path,
             b[2]);
    int n_dims = b[3];
    if (n_dims < min_dims || n_dims > max_dims)
        FAIL(ERR_DATA, "%s has %d dimensions, %s have %d%s: are images and labels swapped?", path,
             n_dims, max_dims == 1 ? "labels" : "images", min_dims, max_dims == 1 ? "" : " to 4");
    size_t head = 4 + 4 * (size_t)n_dims, want = 1;
    if (n_bytes < head)
        FAIL(ERR_DATA, "%s is truncated: %zu bytes, its header alone has %zu", path, n_bytes, head);
    for (int i = 0; i < n_dims; i++) {
        const unsigned char *p = b + 4 + 4 * i;
        dim[i] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        if (dim[i] == 0)
            FAIL(ERR_DATA, "%s: dimension %d is 0", path, i + 1);
        want = want > SIZE_MAX / 2 / (size_t)dim[i] ? SIZE_MAX / 2 : want * (size_t)dim[i];
    }
    if (n_bytes - head != want)
        FAIL(ERR_DATA, "%s is %s: its header says %zu bytes, %zu follow it", path,
             n_bytes - head < want ? "truncated" : "too long", want, n_bytes - head);
    for (int i = n_dims; i < 4; i++)
        dim[i] = 1;
    *body = b + head;
    return ERR_OK;
}

/* The labels' path: the one given, or made from the images' by the names of MNIST. */
static int labels_path(struct data *d, const char *images, const char *given, const char *key,
                       const char **out)
{
    static const char from[] = "images-idx3", to[] = "labels-idx1";
    *out = given;
    if (given)
        return ERR_OK;
    const char *base = strrchr(images, '/');
    const char *at = strstr(base ? base : images, from);
    if (!at)
        FAIL(ERR_USAGE, "%s: %s is not given, and the name has no %s to make it from", images, key,
             from);
    *out = arena_printf(d->arena, "%.*s%s%s", (int)(at - images), images, to, at + sizeof from - 1);
    return ERR_OK;
}

static int open_set(struct idx_set *s)
{
    int64_t dim[4], n_labels[4];
    TRY(read_idx(s->path, 2, 4, &s->images, &s->pixel, dim));
    TRY(read_idx(s->labels_path, 1, 1, &s->labels, &s->label, n_labels));
    s->n = dim[0];
    s->n_in = dim[1] * dim[2] * dim[3];
    if (n_labels[0] != s->n)
        FAIL(ERR_DATA, "%s has %lld labels, but %s has %lld images", s->labels_path,
             (long long)n_labels[0], s->path, (long long)s->n);
    return ERR_OK;
}

/* The number of classes, and that no label is beyond it. */
static int count_classes(const struct idx_state *st, int64_t given, int64_t *n_classes)
{
    int64_t n = given == OPT_AUTO_I64 ? 2 : given;
    for (int k = 0; k < 1 + st->own_eval; k++) {
        const struct idx_set *s = &st->set[k];
        for (int64_t i = 0; i < s->n; i++) {
            if (s->label[i] < n)
                continue;
            if (given != OPT_AUTO_I64)
                FAIL(ERR_DATA, "%s: label %lld is %d, beyond classes = %lld", s->labels_path,
                     (long long)i, s->label[i], (long long)given);
            n = s->label[i] + 1;
        }
    }
    *n_classes = n;
    return ERR_OK;
}

static int idx_open(struct data *d, const void *conf)
{
    const struct idx_conf *c = conf;
    struct idx_state *st = d->state = calloc(1, sizeof *st);
    if (!st)
        FAIL(ERR_RESOURCE, "no memory for a data source");
    struct idx_set *train = &st->set[DATA_TRAIN], *eval = &st->set[DATA_EVAL];
    st->own_eval = c->eval_path != NULL;
    train->path = d->conf->path;
    eval->path = c->eval_path;
    if (c->eval_labels && !c->eval_path)
        FAIL(ERR_USAGE, "eval_labels = %s without eval_path, the images", c->eval_labels);
    double share = data_share(d->conf, st->own_eval ? 1 : 0.9);
    if (st->own_eval && share < 1)
        FAIL(ERR_USAGE, "split = %g and eval_path = %s are two evaluation sets: give one", share,
             c->eval_path);
    TRY(labels_path(d, train->path, c->labels, "labels", &train->labels_path));
    TRY(open_set(train));
    if (st->own_eval) {
        TRY(labels_path(d, eval->path, c->eval_labels, "eval_labels", &eval->labels_path));
        TRY(open_set(eval));
        if (eval->n_in != train->n_in)
            FAIL(ERR_DATA, "%s has %lld pixels an image, but %s has %lld", eval->path,
                 (long long)eval->n_in, train->path, (long long)train->n_in);
    }
    int64_t n_classes = 0;
    TRY(count_classes(st, c->classes, &n_classes));
    TRY(rows_split(train->path, d->seed, train->n, share, &st->rows));
    d->shape = (struct sample_shape){.kind = SAMPLE_CLASS, .vocab = n_classes, .n_in = train->n_in};
    return ERR_OK;
}

static int idx_cut(struct data *d, int64_t T)
{
    const struct idx_state *st = d->state;
    (void)T;
    d->n_samples[DATA_TRAIN] = st->rows.n[DATA_TRAIN];
    d->n_samples[DATA_EVAL] = st->own_eval ? st->set[DATA_EVAL].n : st->rows.n[DATA_EVAL];
    return ERR_OK;
}

static int64_t idx_n_valid(const struct data *d, enum data_part part, int64_t i)
{
    REQUIRE(i >= 0 && i < d->n_samples[part]);
    return 1;
}

static void idx_get(const struct data *d, enum data_part part, int64_t i,
                    const struct batch_row *row)
{
    const struct idx_state *st = d->state;
    REQUIRE(i >= 0 && i < d->n_samples[part]);
    bool own = part == DATA_EVAL && st->own_eval;
    const struct idx_set *s = &st->set[own ? DATA_EVAL : DATA_TRAIN];
    int64_t r = own ? i : rows_at(&st->rows, part, i);
    const unsigned char *pixel = s->pixel + r * s->n_in;
    for (int64_t j = 0; j < s->n_in; j++)
        row->features[j] = (float)pixel[j] / 255.0f;
    row->targets[0] = s->label[r];
}

static void idx_close(struct data *d)
{
    struct idx_state *st = d->state;
    for (int k = 0; k < 2; k++) {
        free(st->set[k].images);
        free(st->set[k].labels);
    }
    rows_clear(&st->rows);
    free(st);
}

static const char *const idx_suffixes[] = {"-ubyte", ".idx", ".idx3", NULL};

const struct data_ops idx_ops = {
    .name = "idx",
    .suffixes = idx_suffixes,
    .opts = idx_opts,
    .conf_bytes = sizeof(struct idx_conf),
    .open = idx_open,
    .cut = idx_cut,
    .n_valid = idx_n_valid,
    .get = idx_get,
    .close = idx_close,
};
