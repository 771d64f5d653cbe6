/* stretto inspect: what a checkpoint or a file of weights holds, and how two of them differ. */
#include "cli/cli.h"

#include "base/json.h"
#include "ckpt/stats.h"
#include <stdio.h>
#include <string.h>

struct inspect_conf {
    bool json, stats;
    const char *diff;
};

static const struct opt inspect_opts[] = {
    STR(inspect_conf, diff, NULL, "compare with this one: tensor by tensor, by group and name"),
    BOOL(inspect_conf, json, "false", "one JSON object instead of lines"),
    BOOL(inspect_conf, stats, "true", "read the values: least, largest, mean, norm, NaN"),
    {.type = OPT_END},
};

static const char *const counters[] = {
    "name",    "model",  "strategy",     "optimizer",    "world", "step",   "epoch", "index",
    "samples", "tokens", "micro_global", "accumulation", "seed",  "run_id", NULL};

static const char *dtype_of(const struct weights *w, int i)
{
    enum dtype t = w->rows[i].x.dtype;
    return t == DTYPE_COUNT ? w->source->dtype_words[w->rows[i].from] : dtype_name(t);
}

/* JSON has no NaN and no infinity: null. */
static void put_number(struct text *t, const char *key, double v)
{
    if (isfinite(v))
        text_printf(t, ", \"%s\": %.9g", key, v);
    else
        text_printf(t, ", \"%s\": null", key);
}

static void put_member(struct text *t, const char *key, const char *value)
{
    text_printf(t, ", \"%s\": ", key);
    text_json_string(t, value);
}

static void put_array(const struct weights *w, int i, const struct tensor_stats *st, struct text *t)
{
    const struct ckpt_array *x = &w->rows[i].x;
    text_printf(t, "%s\n    {\"group\": \"%s\"", i ? "," : "", x->group);
    put_member(t, "name", x->name);
    put_member(t, "dtype", dtype_of(w, i));
    text_printf(t, ", \"shape\": [");
    for (int d = 0; d < x->shape.n_dims; d++)
        text_printf(t, "%s%lld", d ? ", " : "", (long long)x->shape.dim[d]);
    text_printf(t, "]");
    if (x->layout)
        put_member(t, "layout", x->layout);
    if (x->alias)
        put_member(t, "alias", x->alias);
    if (st) {
        put_number(t, "min", st->min);
        put_number(t, "max", st->max);
        put_number(t, "mean", st->mean);
        put_number(t, "norm", st->norm);
        text_printf(t, ", \"nan\": %lld, \"inf\": %lld", (long long)st->n_nan,
                    (long long)st->n_inf);
    }
    text_printf(t, "}");
}

static void print_array(const struct weights *w, int i, const struct tensor_stats *st,
                        struct text *t)
{
    const struct ckpt_array *x = &w->rows[i].x;
    char shape[64];
    text_printf(t, "%-18s %-32s %-8s %-14s", x->group, x->name, dtype_of(w, i),
                shape_print(&x->shape, shape, sizeof shape));
    if (st)
        text_printf(t, " %10.4g ... %-10.4g mean %-10.4g norm %-10.4g", st->min, st->max, st->mean,
                    st->norm);
    if (st && (st->n_nan > 0 || st->n_inf > 0))
        text_printf(t, " %lld NaN, %lld infinite ", (long long)st->n_nan, (long long)st->n_inf);
    text_printf(t, " %s%s%s\n", x->layout ? x->layout : "", x->alias ? " = " : "",
                x->alias ? x->alias : "");
}

static void print_meta(const struct source *s, bool json, struct text *t)
{
    if (json) {
        text_printf(t, "{\n  \"path\": ");
        text_json_string(t, s->path);
        put_member(t, "format", s->ops->name);
    } else {
        text_printf(t, "%s\n", s->path);
        text_printf(t, "%-13s %s\n", "format", s->ops->name);
    }
    for (const char *const *w = counters; *w && s->ckpt; w++) {
        const struct json *v = json_get(s->meta, *w);
        if (v && v->text && json) {
            text_printf(t, ",\n  \"%s\": ", *w);
            json_print(v, t);
        } else if (v && v->text) {
            text_printf(t, "%-13s %s\n", *w, v->text);
        }
    }
    const char *job = NULL;
    if (json && s->ckpt && json_get_string(s->meta, "job", &job) == ERR_OK)
        put_member(t, "job", job);
}

static int show(const struct source *s, const struct inspect_conf *c, struct arena *a,
                struct text *t)
{
    int64_t total = 0;
    struct weights w;
    weights_all(s, a, &w);
    print_meta(s, c->json, t);
    if (c->json)
        text_printf(t, ",\n  \"tensors\": [");
    for (int i = 0; i < w.n; i++) {
        struct tensor_stats st;
        bool read = c->stats && w.rows[i].x.dtype != DTYPE_COUNT;
        if (read)
            TRY(stats_read(&w, i, &st));
        if (c->json)
            put_array(&w, i, read ? &st : NULL, t);
        else
            print_array(&w, i, read ? &st : NULL, t);
        if (strcmp(w.rows[i].x.group, "model") == 0)
            total += shape_elems(&w.rows[i].x.shape);
    }
    if (c->json)
        text_printf(t, "\n  ],\n  \"parameters\": %lld\n}\n", (long long)total);
    else
        text_printf(t, "%lld parameters\n", (long long)total);
    return ERR_OK;
}

/* How the tensors of a stand to those of b; which are only in one of them. */
struct tally {
    int n_bitwise, n_equal, n_differ, n_lone;
    double max_abs, max_rel;
};

/* The beginning of a tensor's object or line. */
static void put_name(const struct ckpt_array *x, bool json, const struct tally *n, struct text *t)
{
    bool first = n->n_bitwise + n->n_equal + n->n_differ + n->n_lone == 0;
    if (json) {
        text_printf(t, "%s\n    {\"group\": \"%s\"", first ? "" : ",", x->group);
        put_member(t, "name", x->name);
    } else {
        text_printf(t, "%-18s %-32s ", x->group, x->name);
    }
}

static void put_lone(const struct weights *w, int i, bool json, struct tally *n, struct text *t)
{
    put_name(&w->rows[i].x, json, n, t);
    if (json) {
        put_member(t, "only_in", w->source->path);
        text_printf(t, "}");
    } else {
        text_printf(t, "only in %s\n", w->source->path);
    }
    n->n_lone++;
}

static void put_figures(const struct tensor_diff *d, bool shaped, struct text *t)
{
    text_printf(t, ", \"bitwise\": %s, \"same_shape\": %s", d->bitwise ? "true" : "false",
                shaped ? "true" : "false");
    put_number(t, "max_abs", d->max_abs);
    put_number(t, "max_rel", d->max_rel);
    text_printf(t, ", \"values\": %lld, \"first\": %lld}", (long long)d->n_differ,
                (long long)d->first);
}

static int put_diff(const struct weights *a, int i, const struct weights *b, int k, bool json,
                    struct tally *n, struct text *t)
{
    const struct ckpt_array *x = &a->rows[i].x, *y = &b->rows[k].x;
    struct tensor_diff d = {.max_abs = INFINITY, .max_rel = INFINITY, .first = -1};
    bool shaped = shape_equal(&x->shape, &y->shape);
    char sa[64], sb[64];
    if (shaped && x->dtype != DTYPE_COUNT && y->dtype != DTYPE_COUNT)
        TRY(stats_compare(a, i, b, k, &d));
    bool equal = shaped && d.n_differ == 0 && isfinite(d.max_abs);
    put_name(x, json, n, t);
    n->n_bitwise += d.bitwise;
    n->n_equal += equal && !d.bitwise;
    n->n_differ += !equal;
    n->max_abs = fmax(n->max_abs, d.max_abs);
    n->max_rel = fmax(n->max_rel, d.max_rel);
    if (json)
        put_figures(&d, shaped, t);
    else if (!shaped)
        text_printf(t, "%s and %s\n", shape_print(&x->shape, sa, sizeof sa),
                    shape_print(&y->shape, sb, sizeof sb));
    else if (d.bitwise)
        text_printf(t, "bitwise equal\n");
    else if (equal)
        text_printf(t, "equal as numbers (%s, %s)\n", dtype_of(a, i), dtype_of(b, k));
    else
        text_printf(t, "max abs %.4g, max rel %.4g, %lld of %lld values, first at %lld\n",
                    d.max_abs, d.max_rel, (long long)d.n_differ, (long long)shape_elems(&x->shape),
                    (long long)d.first);
    return ERR_OK;
}

static int find(const struct weights *w, const struct ckpt_array *x)
{
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->rows[i].x.name, x->name) == 0 && strcmp(w->rows[i].x.group, x->group) == 0)
            return i;
    return -1;
}

static int compare_all(const struct weights *a, const struct weights *b, bool json, struct tally *n,
                       struct text *t)
{
    for (int i = 0; i < a->n; i++) {
        int k = find(b, &a->rows[i].x);
        if (k < 0)
            put_lone(a, i, json, n, t);
        else
            TRY(put_diff(a, i, b, k, json, n, t));
    }
    for (int k = 0; k < b->n; k++)
        if (find(a, &b->rows[k].x) < 0)
            put_lone(b, k, json, n, t);
    return ERR_OK;
}

/* Two checkpoints with all that they hold; else the weights, under the same names whoever wrote
 * them. */
static int compare(const struct source *x, const struct source *y, bool json, struct arena *arena,
                   struct text *t)
{
    struct tally n = {0};
    struct weights a, b;
    if (x->ckpt && y->ckpt) {
        weights_all(x, arena, &a);
        weights_all(y, arena, &b);
    } else {
        TRY(weights_name(x, 0, 0, arena, &a));
        TRY(weights_name(y, 0, 0, arena, &b));
    }
    if (json) {
        text_printf(t, "{\n  \"a\": ");
        text_json_string(t, x->path);
        put_member(t, "b", y->path);
        text_printf(t, ",\n  \"tensors\": [");
    }
    TRY(compare_all(&a, &b, json, &n, t));
    if (json) {
        text_printf(t, "\n  ],\n  \"bitwise\": %s",
                    n.n_equal + n.n_differ + n.n_lone == 0 ? "true" : "false");
        put_number(t, "max_abs", n.max_abs);
        put_number(t, "max_rel", n.max_rel);
        text_printf(t, "\n}\n");
    } else {
        text_printf(t, "%d tensors bitwise equal, %d equal as numbers, %d differ, %d in one only\n",
                    n.n_bitwise, n.n_equal, n.n_differ, n.n_lone);
    }
    return ERR_OK;
}

/* A job file stands for its output folder. */
static int open_source(struct cli *c, const char *what, struct source **out)
{
    size_t n = strlen(what);
    *out = NULL;
    if (n > 4 && strcmp(what + n - 4, ".ini") == 0)
        TRY(cli_output_of(c, what, &what));
    return source_open(what, out);
}

static int inspect(struct cli *c, int argc, char **argv)
{
    struct inspect_conf conf = {0};
    struct source *s = NULL, *other = NULL;
    struct text t = {0};
    TRY(cli_take_options(c, &argc, argv, inspect_opts, &conf));
    if (argc != 2)
        FAIL(ERR_USAGE, "one checkpoint is needed: say stretto inspect FOLDER, or stretto inspect "
                        "--diff A B");
    TRY(cli_alone(c, argv[0]));
    int rc = open_source(c, conf.diff ? conf.diff : argv[1], &s);
    if (rc == ERR_OK && conf.diff)
        rc = open_source(c, argv[1], &other);
    if (rc == ERR_OK)
        rc = other ? compare(s, other, conf.json, c->arena, &t) : show(s, &conf, c->arena, &t);
    if (rc == ERR_OK && t.s)
        fputs(t.s, stdout);
    text_clear(&t);
    source_close(&s);
    source_close(&other);
    return rc;
}

const struct command inspect_command = {
    .name = "inspect",
    .args = "[--json] [--stats=false] FOLDER|FILE, or --diff A B",
    .summary = "tensors, figures and counters of a checkpoint; how two of them differ",
    .help = "FOLDER is a run's output_dir, one of its step folders, its `latest`, or a folder of\n"
            "transformers'; FILE a .safetensors or a .bin of llama2.c or llm.c.  Needs no mpirun.\n"
            "  --json          one JSON object\n"
            "  --stats=false   do not read the values\n"
            "  --diff A B      largest difference of each tensor, absolute and relative\n",
    .run = inspect,
};
