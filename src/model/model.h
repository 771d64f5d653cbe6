/* A model: a tree of modules with names and global shapes, built from a job's keys.  No memory for
 * weights: the engine gives it that.  One file a family, one line in model_list.c. */
#pragma once
#include "job/opt.h"
#include "layer/layers.h"
#include "model/hf.h"

struct model;

struct model_family {
    const char *name;           /* the word of [model] type */
    const char *const *aliases; /* class names that users know: "GPT2Block" for "Block"; pairs
                                   alias, class, …, NULL */
    const char *block_cls;      /* the class that a transformer wrap policy wraps by default */
    const struct opt *opts;     /* keys of [model] for this type */
    size_t conf_bytes;
    /* Check conf against the data, fill in what follows from it (block size, vocabulary), build the
     * tree.  Errors are ERR_USAGE without a place; *key names the offending key.  Local. */
    int (*build)(struct model *m, void *conf, const char **key);
    int64_t (*block_size)(const void *conf); /* NULL: reads no tokens */
    const char *const *lora_targets; /* linear layers that get adapters where no one says which;
                                        NULL-terminated */
    const struct hf_family *hf;      /* NULL: unknown to transformers */
};

struct model {
    const char *name; /* "" for the only [model], else its section's name */
    const struct model_family *family;
    void *conf;
    const struct lora *lora;   /* NULL: no adapters */
    struct sample_shape shape; /* in: what the data offers; T and vocab are set by the model */
    struct tensor_table table;
    struct module *root;
    struct arena *arena; /* borrowed */
};

extern const struct model_family gpt2_family, llama_family, mlp_family;
extern const struct model_family *const model_list[];           /* NULL-terminated */
const struct model_family *model_family_find(const char *type); /* NULL: none.  Local. */

/* Build a model of family from a conf that was read by family->opts.  With lora (NULL: none; its
 * n_targets 0: the family's) all tensors but the adapters' are frozen.  *key names the key that
 * does not fit.  Local. */
int model_build(const char *name, const struct model_family *family, void *conf,
                const struct lora *lora, const struct sample_shape *shape, struct arena *a,
                const char **key, struct model **out);

/* Tokens that a sample of this model has at most, from its conf alone; 0: reads none.  Local. */
int64_t model_block_size(const struct model_family *family, const void *conf);
