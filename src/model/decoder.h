/* Private to model/: the tree of a decoder-only transformer, whatever its layers are. */
#pragma once
#include "model/model.h"

/* Class "Block" and its children; the norms have a forward_residual. */
enum { NORM_1, ATTENTION, NORM_2, MLP, N_BLOCK_CHILDREN };
extern const struct module_ops decoder_block_ops;

/* conf of the root, whose children are embedding, blocks, last norm, head. */
struct decoder {
    int64_t rope_D; /* width of a head that is turned by its position; 0: no rotary positions */
    double rope_theta;
};

/* forward and backward of the root, for the family's own class.  Local. */
void decoder_forward(const struct module *m, struct pass *p, const void *x, void *y);
void decoder_backward(const struct module *m, struct pass *p, const void *x, void *dy, void *dx);

/* ERR_USAGE unless low divides high; says which numbers near it would.  Local. */
int decoder_divides(const char *low_key, int64_t low, const char *high_key, int64_t high);

/* Common checks of a model that reads text: the kind of data, and that vocab_size, where it is not
 * auto, holds all ids; auto becomes their number.  The shape's vocab becomes that of the logits.
 * ERR_USAGE; *key names the key.  Local. */
int decoder_check_data(struct model *m, int64_t *vocab_size, const char **key);
