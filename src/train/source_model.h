/* The model whose weights a source holds: from the job that a checkpoint keeps, from config.json or
 * a header, or from names and shapes alone. */
#pragma once
#include "ckpt/names.h"
#include "train/conf.h"

#define SOURCE_MODEL_META "stretto" /* the meta object in safetensors' __metadata__ */

struct source_model {
    const struct source *source; /* borrowed */
    struct weights weights;
    struct model *model; /* NULL: tensors of no family that is known here */
    const struct json
        *meta;            /* a checkpoint's own, or what safetensors of ours keep of it; or NULL */
    const char *job_text; /* the job, or its [model] section alone; NULL without a model */
    int *from;            /* (model's rows) the weight that each gets */
};

/* overrides: "model.key=value" for what the source does not say.  ERR_DATA: weights that are not
 * the model's; ERR_USAGE: an override.  Local. */
int source_model_find(const struct source *s, int n_overrides, const char *const *overrides,
                      struct arena *a, struct source_model *out);

/* A key of the model as it would stand in a job file, or NULL.  Local. */
const char *source_model_key(const struct source_model *m, const char *key, struct arena *a);

/* Give a key of the job another value, or none: what is written is no longer as it was trained.
 * Local. */
void source_model_set(struct source_model *m, const char *key, const char *value, struct arena *a);

/* Leave out the job's sections of a kind, [kind] and [kind.NAME].  Returns whether there were any.
 * Local. */
bool source_model_drop(struct source_model *m, const char *kind, struct arena *a);

/* The meta object that a checkpoint of these weights alone keeps.  Local. */
const char *source_model_meta(const struct source_model *m, struct arena *a);
