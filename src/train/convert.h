/* A source's tensors in another format, a piece of memory at a time: no rank, no device. */
#pragma once
#include "train/source_model.h"

enum convert_to { CONVERT_AUTO, CONVERT_SAFETENSORS };

struct convert_conf {
    int to;    /* enum convert_to */
    int dtype; /* 0: as it is, else enum dtype + 1 by convert_dtypes */
    const char *max_shard_size;
    bool overwrite;
};
extern const struct opt convert_opts[];

/* Write the tensors of s to dst: a folder, or a file NAME.safetensors.  said gets a line on what
 * was written and on whatever the target cannot say.  overrides as in source_model_find().
 * ERR_USAGE, ERR_DATA, ERR_RESOURCE; nothing that is there already is replaced unless overwrite
 * is set.  Local. */
int convert_source(const struct source *s, const char *dst, const struct convert_conf *c,
                   int n_overrides, const char *const *overrides, struct text *said);
