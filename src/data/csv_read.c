/* A record may span lines inside quotes; everything is cut where it lies. */
#include "data/csv_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_CELLS = 1 << 24 };

static bool is_blank(const struct csv_reader *r, char c)
{
    return c == ' ' || c == '\r' || (c == '\t' && r->delimiter != '\t');
}

static bool is_end(const struct csv_reader *r, const char *p)
{
    return p == r->end || *p == r->delimiter || *p == '\n';
}

/* Cell behind its opening quote; returns where it ends, NULL after an error. */
static char *take_quoted(struct csv_reader *r, char *p)
{
    char *w = p;
    for (;; p++) {
        if (p == r->end) {
            err_set(ERR_DATA, "%s:%lld: a quote is opened and never closed", r->path,
                    (long long)r->record_line);
            return NULL;
        }
        if (*p == '"' && *++p != '"') /* two quotes stand for one */
            break;
        r->line += *p == '\n';
        *w++ = *p;
    }
    char *closed = p;
    while (p < r->end && is_blank(r, *p))
        p++;
    if (!is_end(r, p)) {
        err_set(ERR_DATA, "%s:%lld: text behind a closing quote: '%.20s'", r->path,
                (long long)r->line, closed);
        return NULL;
    }
    *w = 0;
    return p;
}

static char *take_plain(struct csv_reader *r, char *p)
{
    const char *begin = p;
    while (!is_end(r, p))
        p++;
    char *last = p;
    while (last > begin && is_blank(r, last[-1]))
        last--;
    char *stop = p;
    if (last < p)
        *last = 0;
    return stop;
}

static void add_cell(struct csv_reader *r, char *cell)
{
    if (r->n_cells == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 64;
        char **more = realloc(r->cell, (size_t)r->cap * sizeof *more);
        if (!more)
            FATAL("out of memory for %d columns", r->cap);
        r->cell = more;
    }
    r->cell[r->n_cells++] = cell;
}

static int take_record(struct csv_reader *r, bool *blank)
{
    r->n_cells = 0;
    r->record_line = r->line;
    bool quoted = false;
    for (bool more = true; more;) {
        char *p = r->at;
        while (p < r->end && is_blank(r, *p))
            p++;
        bool quote = p < r->end && *p == '"';
        quoted |= quote;
        char *cell = p + quote;
        char *stop = quote ? take_quoted(r, cell) : take_plain(r, cell);
        if (!stop)
            return ERR_DATA;
        more = stop < r->end && *stop == r->delimiter;
        if (stop < r->end) {
            r->line += *stop == '\n';
            *stop = 0;
            stop++;
        }
        r->at = stop;
        if (r->n_cells == MAX_CELLS)
            FAIL(ERR_DATA, "%s:%lld: more than %d columns", r->path, (long long)r->record_line,
                 MAX_CELLS);
        add_cell(r, cell);
    }
    *blank = !quoted && r->n_cells == 1 && r->cell[0][0] == 0;
    return ERR_OK;
}

int csv_next(struct csv_reader *r, bool *got)
{
    bool blank = true;
    while (blank && r->at < r->end)
        TRY(take_record(r, &blank));
    *got = !blank;
    return ERR_OK;
}

void csv_reader_clear(struct csv_reader *r)
{
    free(r->cell);
    r->cell = NULL;
    r->n_cells = r->cap = 0;
}

enum csv_number csv_parse(const char *cell, double *v)
{
    const char *word = cell + (*cell == '-' || *cell == '+');
    if (strcasecmp(word, "nan") == 0 || strcasecmp(word, "inf") == 0 ||
        strcasecmp(word, "infinity") == 0)
        return CSV_NOT_FINITE;
    size_t n = strspn(cell, "+-.0123456789eE");
    char *stop;
    *v = strtod(cell, &stop);
    if (n == 0 || cell[n] != 0 || *stop != 0)
        return CSV_TEXT;
    return isfinite(*v) ? CSV_NUMBER : CSV_NOT_FINITE;
}
