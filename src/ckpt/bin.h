/* Private to the .bin readers: headers of int32, then tensors one behind another. */
#pragma once
#include "ckpt/source.h"

struct bin {
    struct source *s;
    struct source_files *files;
    struct ckpt_array *arrays;
    enum dtype dtype;
    int64_t n_bytes; /* of the file */
    int64_t at;      /* byte that the next tensor begins at */
};

/* Open s->path, read n int32 (little-endian) from byte offset.  ERR_DATA.  Local. */
int bin_open(struct bin *b, struct source *s, int64_t offset, int n, int32_t *header);
/* Room for n_arrays; tensors begin at byte at.  Local. */
void bin_begin(struct bin *b, int n_arrays, enum dtype dtype, int64_t at);
/* The next tensor: name, rows and columns (0: one dimension).  Local. */
void bin_add(struct bin *b, const char *name, int64_t rows, int64_t cols);
/* One a layer, "layers.%d.NAME".  Local. */
void bin_add_layers(struct bin *b, const char *prefix, const char *name, int64_t n_layer,
                    int64_t rows, int64_t cols);
/* ERR_DATA unless the tensors end where the file ends; sets s->arrays and, from text, s->config.
 * Local. */
int bin_end(struct bin *b, const char *config);
/* ERR_DATA unless 1 <= v <= most; names the field.  Local. */
int bin_check(const struct bin *b, const char *field, int64_t v, int64_t most);
