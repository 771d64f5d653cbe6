/* Reading a CSV file: header, target columns, rows of numbers. */
#include "data/csv_impl.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int csv_cell_error(const struct csv_table *t, int64_t line, int column, const char *cell,
                   const char *text)
{
    const char *name = t->name ? t->name[column] : NULL;
    FAIL(ERR_DATA, "%s:%lld: column %d%s%s%s: '%.40s' %s", t->reader.path, (long long)line,
         column + 1, name ? " (" : "", name ? name : "", name ? ")" : "", cell, text);
}

int csv_feature_column(const struct csv_table *t, int64_t f)
{
    int column = 0;
    for (int64_t left = f;; column++)
        if (t->target_of[column] < 0 && left-- == 0)
            return column;
}

/* "a, b, c", or the first few of many. */
static const char *print_names(const struct csv_table *t, struct arena *a)
{
    enum { SHOWN = 12 };
    const char *list = "";
    for (int i = 0; i < t->n_cols && i < SHOWN; i++)
        list = arena_printf(a, "%s%s%.40s", list, i ? ", " : "", t->name[i]);
    return t->n_cols > SHOWN ? arena_printf(a, "%s, … (%d)", list, t->n_cols) : list;
}

/* A column by position from 1, else by name.  -1: err_set. */
static int find_column(const struct csv_table *t, const char *word, struct arena *a)
{
    const char *path = t->reader.path;
    size_t n = strlen(word);
    if (n > 0 && n < 8 && strspn(word, "0123456789") == n) {
        int i = atoi(word);
        if (i >= 1 && i <= t->n_cols)
            return i - 1;
    }
    if (!t->name) {
        err_set(ERR_USAGE,
                "%s: targets = %s: the file has columns 1 … %d, and no header with names", path,
                word, t->n_cols);
        return -1;
    }
    int found = -1;
    for (int i = 0; i < t->n_cols; i++) {
        if (strcmp(t->name[i], word) != 0)
            continue;
        if (found >= 0) {
            err_set(ERR_USAGE,
                    "%s: targets = %s: columns %d and %d have this name; give the number", path,
                    word, found + 1, i + 1);
            return -1;
        }
        found = i;
    }
    if (found >= 0)
        return found;
    const char **words = arena_alloc(a, ((size_t)t->n_cols + 1) * sizeof *words);
    memcpy(words, t->name, (size_t)t->n_cols * sizeof *words);
    const char *near = text_nearest(word, words);
    if (near)
        err_set(ERR_USAGE, "%s: targets = %s: no column has this name; the nearest is %s", path,
                word, near);
    else
        err_set(ERR_USAGE, "%s: targets = %s: no column has this name or number; they are %s", path,
                word, print_names(t, a));
    return -1;
}

static int choose_targets(struct csv_table *t, const struct csv_conf *conf, struct arena *a)
{
    const char *path = t->reader.path;
    t->n_targets = conf->targets.n ? conf->targets.n : 1;
    t->target_of = malloc((size_t)t->n_cols * sizeof *t->target_of);
    t->column = malloc((size_t)t->n_targets * sizeof *t->column);
    if (!t->target_of || !t->column)
        FAIL(ERR_RESOURCE, "no memory for the %d columns of %s", t->n_cols, path);
    for (int i = 0; i < t->n_cols; i++)
        t->target_of[i] = -1;
    for (int k = 0; k < t->n_targets; k++) {
        const char *word = conf->targets.n ? conf->targets.v[k] : NULL;
        int at = word ? find_column(t, word, a) : t->n_cols - 1;
        if (at < 0)
            return ERR_USAGE;
        if (t->target_of[at] >= 0)
            FAIL(ERR_USAGE, "%s: targets name column %d twice", path, at + 1);
        t->target_of[at] = k;
        t->column[k] = at;
    }
    if (t->n_targets < t->n_cols)
        return ERR_OK;
    if (t->n_cols == 1)
        FAIL(ERR_DATA, "%s has one column, and that is the target: is the delimiter another one?",
             path);
    FAIL(ERR_USAGE, "%s: all %d columns are targets: none is left to learn from", path, t->n_cols);
}

static int resize(void *array, int64_t n, size_t elem_bytes)
{
    void **p = array;
    void *more = (size_t)n > SIZE_MAX / 2 / elem_bytes ? NULL : realloc(*p, (size_t)n * elem_bytes);
    if (!more)
        return ERR_RESOURCE;
    *p = more;
    return ERR_OK;
}

static int grow_rows(struct csv_table *t)
{
    size_t n_features = (size_t)(t->n_cols - t->n_targets);
    if (t->n < t->cap)
        return ERR_OK;
    t->cap = t->cap ? t->cap + t->cap / 2 : 1024;
    if (resize(&t->feature, t->cap, n_features * sizeof(float)) != ERR_OK ||
        resize(&t->target, t->cap, (size_t)t->n_targets * sizeof(char *)) != ERR_OK ||
        resize(&t->line, t->cap, sizeof(int64_t)) != ERR_OK)
        FAIL(ERR_RESOURCE, "no memory for %lld rows of %s", (long long)t->cap, t->reader.path);
    return ERR_OK;
}

static int add_row(struct csv_table *t, char *const *cell, int n_cells, int64_t line)
{
    if (n_cells != t->n_cols)
        FAIL(ERR_DATA, "%s:%lld: %d columns, but the first line has %d", t->reader.path,
             (long long)line, n_cells, t->n_cols);
    TRY(grow_rows(t));
    float *feature = t->feature + t->n * (t->n_cols - t->n_targets);
    char **target = t->target + t->n * t->n_targets;
    for (int i = 0; i < n_cells; i++) {
        double v = 0;
        enum csv_number kind = csv_parse(cell[i], &v);
        int k = t->target_of[i];
        if (cell[i][0] == 0)
            return csv_cell_error(t, line, i, cell[i], "is empty: a value is missing");
        if (kind == CSV_NOT_FINITE)
            return csv_cell_error(t, line, i, cell[i], "is not a finite number");
        if (k >= 0) {
            target[k] = cell[i];
            continue;
        }
        if (kind == CSV_TEXT)
            return csv_cell_error(t, line, i, cell[i], "is not a number, as a feature must be");
        if (fabs(v) > FLT_MAX)
            return csv_cell_error(t, line, i, cell[i], "is beyond a 32-bit float");
        *feature++ = (float)v;
    }
    t->line[t->n++] = line;
    return ERR_OK;
}

/* A header has text where the next line has numbers.  Text in both may be a class label. */
static bool looks_like_header(char *const *first, char *const *second, int n)
{
    double v;
    for (int i = 0; i < n; i++)
        if (csv_parse(first[i], &v) == CSV_TEXT && csv_parse(second[i], &v) != CSV_TEXT)
            return true;
    return false;
}

/* Read the first two records, and with them decide on header and targets. */
static int read_top(struct csv_table *t, const struct csv_conf *conf, struct arena *a)
{
    struct csv_reader *r = &t->reader;
    bool got;
    TRY(csv_next(r, &got));
    if (!got)
        FAIL(ERR_DATA, "%s is empty", r->path);
    int n = t->n_cols = r->n_cells;
    int64_t line = r->record_line;
    char **first = arena_alloc(a, (size_t)n * sizeof *first);
    memcpy(first, r->cell, (size_t)n * sizeof *first);
    TRY(csv_next(r, &got));
    bool header = conf->header == CSV_HEADER_TRUE;
    if (conf->header == CSV_HEADER_AUTO)
        header = got && r->n_cells == n && looks_like_header(first, r->cell, n);
    if (header) {
        const char **name = arena_alloc(a, (size_t)n * sizeof *name);
        for (int i = 0; i < n; i++)
            name[i] = arena_strdup(a, first[i]);
        t->name = name;
    }
    TRY(choose_targets(t, conf, a));
    if (!header)
        TRY(add_row(t, first, n, line));
    if (got)
        TRY(add_row(t, r->cell, r->n_cells, r->record_line));
    return ERR_OK;
}

int csv_table_read(struct csv_table *t, const char *path, const struct csv_conf *conf,
                   struct arena *a)
{
    static const char delimiters[] = {',', ';', '\t'}; /* in the order of the words */
    size_t n_bytes;
    struct csv_reader *r = &t->reader;
    TRY(data_read(path, &t->bytes, &n_bytes));
    if (memchr(t->bytes, 0, n_bytes))
        FAIL(ERR_DATA, "%s has a NUL byte: it is no text file in ASCII or UTF-8", path);
    size_t mark = n_bytes >= 3 && memcmp(t->bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    *r = (struct csv_reader){.path = path,
                             .at = t->bytes + mark,
                             .end = t->bytes + n_bytes,
                             .delimiter = delimiters[conf->delimiter],
                             .line = 1};
    TRY(read_top(t, conf, a));
    for (;;) {
        bool got;
        TRY(csv_next(r, &got));
        if (!got)
            break;
        TRY(add_row(t, r->cell, r->n_cells, r->record_line));
    }
    if (t->n == 0)
        FAIL(ERR_DATA, "%s has a header and no rows", path);
    return ERR_OK;
}

void csv_table_clear(struct csv_table *t)
{
    csv_reader_clear(&t->reader);
    free(t->bytes);
    free(t->target_of);
    free(t->column);
    free(t->feature);
    free(t->target);
    free(t->line);
    *t = (struct csv_table){0};
}
