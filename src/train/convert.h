/* A source's tensors in another format, a piece of memory at a time, by any number of ranks: the
 * files are the same as those of one.  No device. */
#pragma once
#include "train/setup.h"
#include "train/source_model.h"

enum convert_to { CONVERT_SAFETENSORS, CONVERT_FULL, CONVERT_SHARDED, CONVERT_LOCAL };
enum convert_lora { LORA_MERGE, LORA_APART };

struct convert_conf {
    int to;        /* enum convert_to */
    int dtype;     /* of the weights: 0 as it is, else one of float32, bfloat16, float16, float64 */
    int64_t ranks; /* files of a sharded or local checkpoint */
    const char *max_shard_size;
    int lora; /* enum convert_lora */
    bool weights_only, overwrite;
};
extern const struct opt convert_opts[];

/* Write the tensors of s, which every rank has open, to dst: safetensors to a folder or a file
 * NAME.safetensors, a checkpoint to a run's folder.  said gets a line on what was written and on
 * whatever the target cannot say.  overrides as in source_model_find().  ERR_USAGE, ERR_DATA,
 * ERR_RESOURCE; nothing that is there already is replaced unless overwrite is set.
 * Collective on c. */
int convert_source(struct comm *c, const struct source *s, const char *dst,
                   const struct convert_conf *conf, int n_overrides, const char *const *overrides,
                   struct text *said);

/* What [checkpoint] final_export asks for, of a run that is finished: its last checkpoint is
 * converted.  Collective on r->comm. */
int convert_final(const struct run *r);
