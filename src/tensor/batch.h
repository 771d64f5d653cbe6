/* What a data source offers and a model accepts, and one micro-batch of it.  No memory. */
#pragma once
#include <stdint.h>

enum sample_kind {
    SAMPLE_TOKENS, /* inputs (B, T) ids, targets (B, T) ids, -1 where there is nothing to learn */
    SAMPLE_CLASS,  /* inputs (B, n_in) floats, targets (B) class numbers */
    SAMPLE_REGRESSION /* inputs (B, n_in) floats, targets (B, n_out) floats */
};

/* The shape of one sample.  Data fills it in; a model checks it and sizes itself by it. */
struct sample_shape {
    enum sample_kind kind;
    int64_t T;     /* tokens of a sample (SAMPLE_TOKENS): set by the model's block_size */
    int64_t vocab; /* distinct ids, or classes */
    int64_t n_in;  /* features */
    int64_t n_out; /* regression targets */
};

/* One micro-batch of this rank; every array is borrowed.  B may be 0 (a ragged last window). */
struct batch {
    int64_t B, T;           /* T is 0 or 1 where samples are no token strings */
    const int32_t *ids;     /* (B, T) */
    const float *features;  /* (B, n_in) */
    const int32_t *targets; /* (B, T) or (B); -1: not counted */
    const float *values;    /* (B, n_out) */
    const int64_t *sample;  /* (B) global sample ids: keys of dropout, named in errors */
    int64_t n_valid;        /* targets that count: tokens, samples, or B * n_out values */
};
