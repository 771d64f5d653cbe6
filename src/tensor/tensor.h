/* Descriptions only, no memory: dtype, shape, and the tensor table, the spine of the program.
 * One row a tensor; init, weight decay, freezing, sharding, clipping, checkpoints and `inspect`
 * all read the same rows.  Nothing knows a tensor by number.
 *
 * Shape letters used in every comment of the program:
 *   B batch (samples of this rank's micro-batch)   T time (tokens of a sample)   C channels
 *   H heads   D head width   V vocabulary   L layers   M N K of a matrix product   P ranks
 * Capitals are allowed as variable names for these only. */
#pragma once
#include "base/arena.h"

enum dtype { DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_I64, DTYPE_COUNT };

const char *dtype_name(enum dtype t);             /* "float32", …  Local. */
size_t dtype_bytes(enum dtype t);                 /* Local. */
int dtype_parse(const char *name, enum dtype *t); /* ERR_DATA if unknown.  Local. */

enum { SHAPE_MAX_DIMS = 4, BLOCK_ELEMS = 1024 };

struct shape {
    int n_dims;
    int64_t dim[SHAPE_MAX_DIMS];
};

struct shape shape_make(int n_dims, int64_t d0, int64_t d1);           /* n_dims 0 … 2.  Local. */
int64_t shape_elems(const struct shape *s);                            /* Local. */
bool shape_equal(const struct shape *a, const struct shape *b);        /* Local. */
const char *shape_print(const struct shape *s, char *buf, size_t cap); /* "(3, 4)".  Local. */

/* How a tensor gets its first values; a and b are mean and std, or low and high. */
enum init_kind { INIT_CONST, INIT_NORMAL, INIT_UNIFORM };
struct init_rule {
    enum init_kind kind;
    float a, b;
};

enum tensor_flags {
    TENSOR_DECAY = 1,  /* a matrix: weight decay applies where only matrices decay */
    TENSOR_FROZEN = 2, /* no gradient, no moments */
    TENSOR_ADAPTER = 4 /* LoRA's: trained while the layers beside it are frozen */
};

struct tensor_row {
    const char *name; /* full, in Hugging Face's words: "h.0.attn.c_attn.weight" */
    struct shape shape;
    unsigned flags;
    struct init_rule init;
    const char *layout; /* "out_in" torch Linear, "in_out" Conv1D, "plain"; stored with it */
    const char *alias;  /* another name for the same storage (a tied head), or NULL */
};

struct tensor_table {
    struct arena *arena; /* borrowed: rows and names live there */
    struct tensor_row *rows;
    int n_rows, cap;
};

/* Append a row (name is copied); returns its number, which stays valid.  Local. */
int tensor_add(struct tensor_table *t, const struct tensor_row *row);

/* The row of that name or alias, or -1.  Local. */
int tensor_find(const struct tensor_table *t, const char *name);

int64_t tensor_table_elems(const struct tensor_table *t); /* sum over all rows.  Local. */
