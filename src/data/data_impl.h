/* What the sources of this folder share among themselves. */
#pragma once
#include "data/data.h"

extern const struct data_ops text_ops, csv_ops, idx_ops;

/* The share of training samples: the job's, or the source's own where it says auto.  Local. */
static inline double data_share(const struct data_conf *conf, double auto_share)
{
    return opt_is_auto(conf->split) ? auto_share : conf->split;
}

/* Read a file into memory, unpacking gzip; as file_read().  What would not fit into the machine's
 * memory is ERR_RESOURCE.  Local. */
int data_read(const char *path, char **out, size_t *n_bytes);

/* The first *n_bytes (fewer if the file is shorter) of the unpacked file.  Local. */
int data_head(const char *path, void *out, size_t *n_bytes);

/* Unpack a gzip file in memory (RFC 1952, any number of members); path is for messages.  *out is
 * owned by the caller (free), with a NUL behind the last byte.  ERR_DATA if it is damaged or cut
 * short, ERR_RESOURCE if it has more than max_bytes.  Local. */
int data_unpack(const char *path, const char *packed, size_t n_packed, size_t max_bytes, char **out,
                size_t *n_bytes);

/* Which rows of a table are in which part. */
struct rows {
    int64_t n[2];   /* by enum data_part */
    int64_t *at[2]; /* row numbers, ascending; owned; NULL: the rows as they stand */
};

/* Hold out all but share of n rows, drawn by seed, so that a sorted file is no trap.  ERR_DATA if
 * a part that is wanted (evaluation: where share < 1) is empty; path is for messages.  Local. */
int rows_split(const char *path, uint64_t seed, int64_t n, double share, struct rows *out);
void rows_clear(struct rows *r);

/* Sample i of a part as a row number.  Local. */
static inline int64_t rows_at(const struct rows *r, enum data_part part, int64_t i)
{
    return r->at[part] ? r->at[part][i] : i;
}
