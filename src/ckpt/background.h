/* Saves that go on behind the training: values are copied to memory set aside beforehand, then
 * written by a thread while their owners change them.  The thread sends no messages: whatever ranks
 * have to agree on waits until all of them poll.  HDF5 runs on that thread only, one save after
 * another. */
#pragma once
#include "base/memory.h"
#include "ckpt/ckpt.h"

enum { CKPT_MOST_SNAPSHOTS = 2 };

struct ckpt_background;

/* How values come to a snapshot: n spans, one behind another. */
struct ckpt_gather {
    void (*run)(void *self, void *to, const struct memory_span *span, int n);
    void *self; /* borrowed */
};

/* Room for n_snapshots (1 or 2) of n_bytes, this rank's values of a save.  ERR_RESOURCE.  Local. */
int ckpt_background_create(struct comm *c, size_t n_bytes, int n_snapshots,
                           struct ckpt_gather gather, struct ckpt_background **out);

/* Give up what is under way; its step-N.tmp may stay, worth nothing.  Local. */
void ckpt_background_destroy(struct ckpt_background **b);

/* Is there a snapshot free?  The same on all ranks.  Local. */
bool ckpt_background_is_free(const struct ckpt_background *b);

/* Copy this rank's values and begin to write; takes the arena, in which s's arrays, names and meta
 * lie.  One snapshot must be free.  Errors as of ckpt_save's checks.  Collective on c. */
int ckpt_background_save(struct ckpt_background *b, const struct ckpt_save *s,
                         struct arena *take_arena);

/* Go on with what all ranks are ready for.  *step: the step whose save has ended, with the status
 * that ckpt_save would have returned; -1: none has.  wait: until one ends, if any is under way.
 * Collective on c; no message where nothing is under way. */
int ckpt_background_poll(struct ckpt_background *b, bool wait, int64_t *step);
