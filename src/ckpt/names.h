/* The weights of a model out of a source, under the names and in the orientation that this program
 * and Hugging Face use, whoever's names the source has: Hugging Face's, nanoGPT's and llm.c's
 * (linear layers [out, in] where GPT-2's are [in, out]), Meta's and llama2.c's (rows of q and k
 * interleaved for rotary positions where Hugging Face has a head's halves).  One table a dialect,
 * in names.c.  Nothing is held: values are turned as they are read. */
#pragma once
#include "ckpt/source.h"
#include "job/opt.h"

/* How a weight comes from its source's array. */
enum names_turn {
    TURN_NONE,
    TURN_TRANSPOSE, /* [out, in] in the source */
    TURN_HALVES     /* rows of a head: pairs (2i, 2i + 1) in the source, (i, i + D / 2) here */
};

struct weight {
    struct ckpt_array x; /* group "model"; dtype as in the source */
    int from;            /* array of the source */
    enum names_turn turn;
    int64_t head_rows; /* TURN_HALVES: D */
};

struct weights {
    const struct source *source; /* borrowed */
    const char *family;          /* "gpt2", "llama", or NULL: names were taken as they are */
    const char *dialect;         /* for people: "Hugging Face", "nanoGPT", … */
    struct weight *rows;
    int n;
};

/* Name all weights of s.  n_head and n_kv_head are only needed for Meta's names and come from the
 * source's config where they are 0.  ERR_DATA: a tensor that the dialect does not know, two of one
 * name, or a dtype that cannot be read.  Local. */
int weights_name(const struct source *s, int64_t n_head, int64_t n_kv_head, struct arena *a,
                 struct weights *out);

/* Every array of every group as it is in the source.  Local. */
void weights_all(const struct source *s, struct arena *a, struct weights *out);

/* The number of a weight by our name, or -1; not for weights_all().  Local. */
int weights_find(const struct weights *w, const char *name);

/* Elements [begin, end) of weight i, in the source's dtype.  Any range works; whole rows are fast.
 * ERR_DATA.  Local. */
int weights_read(const struct weights *w, int i, int64_t begin, int64_t end, void *values);
/* The same in another dtype.  ERR_DATA also where a finite value would become infinite.  Local. */
int weights_read_as(const struct weights *w, int i, enum dtype as, int64_t begin, int64_t end,
                    void *values);

/* What may differ between a model and the weights that it begins with. */
struct weights_rules {
    const struct opt_strs *may_miss;    /* shell patterns of the model's tensors, or NULL */
    const struct opt_strs *may_be_left; /* of the source's weights, or NULL */
    bool begins;     /* a fine-tuning's start: adapters, which it adds, may miss */
    bool grow_vocab; /* rows of tokens that the source has not may be added behind its own */
};

/* For each row of the model's table the weight that it gets, or -1: it keeps its first values.
 * A weight with fewer rows of tokens gives the first rows.  ERR_DATA names the first difference
 * (missing with the nearest name, shape, layout, one too many, a tied head with values of its own),
 * and the rule that would allow it.  Local. */
int weights_match(const struct weights *w, const struct tensor_table *t,
                  const struct weights_rules *rules, int *from);
