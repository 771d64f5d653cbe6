/* A CSV file between reading and use: what csv_table.c reads and csv.c turns into samples. */
#pragma once
#include "data/csv_read.h"
#include "data/data_impl.h"

enum csv_header { CSV_HEADER_AUTO, CSV_HEADER_TRUE, CSV_HEADER_FALSE };
enum csv_task { CSV_TASK_AUTO, CSV_TASK_CLASS, CSV_TASK_REGRESSION };
enum csv_normalize { CSV_NONE, CSV_STANDARD, CSV_MINMAX };

struct csv_conf {
    struct opt_strs targets;
    int task, header, delimiter, normalize;
};

struct csv_table {
    char *bytes; /* owned: the file, cut into cells */
    struct csv_reader reader;
    const char *const *name; /* (n_cols), in the arena; NULL without a header */
    int n_cols, n_targets;
    int *target_of; /* (n_cols), owned: which target a column is, or -1 */
    int *column;    /* (n_targets), owned: a target's column */
    int64_t n, cap; /* rows */
    float *feature; /* (n, n_cols - n_targets), owned */
    char **target;  /* (n, n_targets), owned; the cells, borrowed from bytes */
    int64_t *line;  /* (n), owned */
};

/* Read path.  Errors as data_open(); the caller clears the table after an error as well.  Local. */
int csv_table_read(struct csv_table *t, const char *path, const struct csv_conf *conf,
                   struct arena *a);
void csv_table_clear(struct csv_table *t);

/* An error in one cell: sets "FILE:LINE: column C (NAME): 'cell' …"; returns ERR_DATA.  Local. */
int csv_cell_error(const struct csv_table *t, int64_t line, int column, const char *cell,
                   const char *text);

/* The column of feature f.  Local. */
int csv_feature_column(const struct csv_table *t, int64_t f);
