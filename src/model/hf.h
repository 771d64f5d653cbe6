/* config.json, Hugging Face's description of a model, from and to the keys of [model]. */
#pragma once
#include "base/json.h"
#include "base/text.h"
#include "job/opt.h"

struct model;
struct model_family;

/* A family's part of it.  Lists end with NULL. */
struct hf_family {
    const char *model_type;   /* "gpt2" */
    const char *architecture; /* "GPT2LMHeadModel" */
    const char *prefix;       /* in front of the names of all tensors but lm_head's */
    /* pairs: config's key, key of [model] that it is the same as */
    const char *const *keys;
    /* pairs: config's key, the only value that is computed here, as JSON; written too.  A default
     * in transformers: it may miss. */
    const char *const *fixed;
    /* pairs: config's key, what transformers takes where it is missing, where ours is another */
    const char *const *missing;
    /* pairs: our word, config's word, for the values of enums where they differ */
    const char *const *words;
};

/* Append "key = value" lines of a [model] section, type included.  ERR_DATA: no family of ours, or
 * a value that is not computed here.  Local. */
int hf_config_to_model(const struct json *config, struct arena *a, struct text *out);

/* Append the config.json of a model whose weights are stored as dtype.  ERR_DATA: its family has
 * none.  a is scratch.  Local. */
int hf_config_from_model(const struct model *m, enum dtype dtype, struct arena *a,
                         struct text *out);
