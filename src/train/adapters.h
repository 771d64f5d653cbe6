/* LoRA's adapters of a source: added to the weights beside them, or alone in peft's words. */
#pragma once
#include "train/source_model.h"

/* The adapter of a model's row. */
struct adapter {
    int a, b; /* weights of the source: A (rank, n_in), B (n_out, rank); -1: none */
    double scale;
    bool in_out;  /* the row is (n_in, n_out) */
    float *A, *B; /* owned; NULL until they are needed */
};

/* The adapter of row i of m->model, if it has one.  Local. */
struct adapter adapter_find(const struct source_model *m, int i, struct arena *a);

/* Add scale * B A to elements [begin, end) of the row, values (float32) of which C = its columns.
 * ERR_DATA, ERR_RESOURCE.  Local. */
int adapter_add(struct adapter *x, const struct weights *w, int64_t begin, int64_t end,
                const struct shape *shape, float *values);
void adapter_clear(struct adapter *x); /* Local. */

/* Append peft's adapter_config.json.  Local. */
void adapter_config(const struct source_model *m, struct arena *a, struct text *out);
