/* Text that a model writes: one token at a time from its own output. */
#pragma once
#include "train/engine.h"

struct sample_conf {
    const char *prompt; /* NULL: a line break, or the vocabulary's first token */
    int64_t tokens;
    double temperature; /* 0: always the likeliest */
    int64_t top_k;      /* 0: all */
    int64_t seed;
};

extern const struct opt sample_opts[]; /* for `generate` */

/* Append prompt and continuation to out.  ERR_DATA if the prompt has characters that the vocabulary
 * lacks; ERR_USAGE if the model reads no tokens.  on_token (may be NULL) gets each piece at once.
 * Collective on run->comm: all ranks compute the same. */
int sample_text(struct engine *e, const struct sample_conf *conf, struct text *out,
                void (*on_token)(const char *bytes, size_t n_bytes));
