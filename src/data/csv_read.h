/* Comma-separated text (RFC 4180), a record at a time, unquoted in place. */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct csv_reader {
    const char *path; /* borrowed: for messages */
    char *at, *end;   /* borrowed: what is left of the text; *end is a NUL; written to */
    char delimiter;
    int64_t line;        /* where the next record begins, from 1 */
    int64_t record_line; /* where the last one began */
    char **cell;         /* owned; cells of the last record, each ends in NUL, in the text */
    int n_cells, cap;
};

/* The next record that is not a blank line; *got is false at the end.  Blanks around an unquoted
 * cell are dropped.  ERR_DATA names file and line of a quote that does not fit.  Local. */
int csv_next(struct csv_reader *r, bool *got);
void csv_reader_clear(struct csv_reader *r);

enum csv_number { CSV_NUMBER, CSV_NOT_FINITE, CSV_TEXT };

/* A cell as a decimal number.  nan, inf and what is beyond a double are CSV_NOT_FINITE.  Local. */
enum csv_number csv_parse(const char *cell, double *v);
