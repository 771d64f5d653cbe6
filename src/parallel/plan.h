/* The plan: who holds what, how big it is, and in what order it moves.  Pure: no memory for values,
 * no device, no messages, so it can be made for any number of ranks on a login node. */
#pragma once
#include "base/text.h"
#include "model/model.h"
#include "parallel/policy.h"

/* A part of the module tree whose parameters lie in one flat range and move together.  Where some
 * of its tensors are frozen and others are not, it is two units of one module, the frozen one
 * second: each is cut evenly, and a frozen one has no gradient, moments or sums. */
struct plan_unit {
    struct module *module; /* whose hooks belong to the unit */
    const int *row;        /* its tensors in execution order */
    int n_rows;
    int64_t begin, n_elem; /* range in the model's flat arrays; multiples of BLOCK_ELEMS */
    const int64_t *cut;    /* (size + 1) from the unit's begin: rank r owns [cut[r], cut[r + 1]) */
    bool encloses;         /* other units lie inside its module */
    bool keep;             /* parameters that were gathered stay from forward to backward */
    bool persists;         /* parameters that are never freed; begins and ends with the root */
    bool early_grad;       /* its gradient begins in forward: a loss head is part of it */
    bool frozen;           /* all of its tensors are; else none */
};

/* Where a tensor lies.  It starts at a multiple of BLOCK_ELEMS and shards are cut only there, so
 * that block sums, per-tensor ranges and file ranges never straddle ranks. */
struct plan_place {
    int unit;
    int64_t begin; /* in the model's flat arrays */
};

struct plan {
    const struct policy *policy;
    int size; /* ranks that share the model */
    int n_units, n_rows;
    struct plan_unit *unit;
    struct plan_place *place; /* by row */
    int64_t n_elem;           /* of flat arrays of weights, padding included */
    int64_t n_train;          /* of flat arrays of gradients and moments: the first so many */
    const int *trained;       /* rows that are not frozen, in order */
    int n_trained;
    int64_t n_params;       /* without padding */
    int64_t n_train_params; /* and without what is frozen */
};

/* How much one micro-batch needs, from a dry run of the model. */
struct plan_memory {
    size_t tape_bytes, frame_bytes, scratch_bytes;
};

/* What libraries keep in a process that computes and saves, beside all that is planned: kernels
 * that they generate, HDF5's tables.  Measured with 124M parameters. */
enum { PLAN_LIBRARY_BYTES = 8 << 20 };

/* How the tree is cut into units; the root takes the rest. */
enum wrap_kind { WRAP_BLOCKS, WRAP_CLASSES, WRAP_SIZE, WRAP_NONE };
struct wrap {
    enum wrap_kind kind;        /* BLOCKS: the family's own block class */
    const char *const *classes; /* CLASSES: NULL-terminated; the family's aliases are known */
    int64_t min_params;         /* SIZE: wrap what has as many parameters not yet wrapped */
    /* Where parameters are sharded, as ZeRO stage 3 has it; all 0: none of this. */
    int64_t persist_elems; /* tensors of at most so many elements stay whole … */
    int64_t persist_total; /* … as long as they are not more than this together */
    const char *ignored;   /* NULL, or those of modules whose path this regular expression is */
    int64_t reuse_elems;   /* a unit stays that is used again before so many elements were */
    int64_t live_elems;    /* … as long as no more than so many are whole at once */
};

/* The plan for size ranks that share the model.  A tied tensor belongs to the root, where its users
 * meet.  All in the arena a.  Local. */
struct plan *plan_make(const struct model *m, const struct policy *policy, const struct wrap *wrap,
                       int size, struct arena *a);

/* Does some module of m have this class, or a family alias of it?  Local. */
bool plan_has_class(const struct model *m, const char *cls);

/* Tensors that wrap.ignored = pattern would keep whole; -1: it is no regular expression.  Local. */
int plan_count_ignored(const struct model *m, const char *pattern);

/* Class names of m's modules, "Block, Attention, …", for messages.  Local. */
void plan_print_classes(const struct model *m, struct text *out);

/* Width of the model's blocks: what DeepSpeed's automatic sizes count in.  Local. */
int64_t plan_width(const struct model *m);

enum pass_kind { PASS_TRAIN, PASS_EVAL, PASS_LOGITS }; /* LOGITS: of the last position only */

/* One micro-batch of B samples of T tokens. */
struct plan_case {
    int64_t B, T;
    enum pass_kind kind;
    enum dtype compute;
};

/* Tape, frames and scratch of one micro-batch.  Local. */
void plan_measure(const struct model *m, const struct device *dev, const struct plan_case *c,
                  struct plan_memory *out);
/* The same with a tape in two blocks, the first of split bytes; reach by row as in struct pass, or
 * NULL.  Local. */
void plan_measure_split(const struct model *m, const struct device *dev, const struct plan_case *c,
                        size_t split, int64_t *reach, struct plan_memory *out);

/* The part [*begin, *end) of tensor row, counted from its first element, that rank owns.  Local. */
void plan_own_part(const struct plan *p, const struct model *m, int row, int rank, int64_t *begin,
                   int64_t *end);

/* Elements of rank's parts of all units together, and of those that are trained.  Local. */
int64_t plan_own_elems(const struct plan *p, int rank);
int64_t plan_own_train(const struct plan *p, int rank);

/* A number that plans share which give every rank the same parts in the same order.  Local. */
uint64_t plan_hash(const struct plan *p);
