/* Batches: memory for one micro-batch, filled with the samples at a global position. */
#pragma once
#include "data/data.h"
#include "data/sampler.h"

struct feed {
    const struct data *data; /* borrowed */
    enum data_part part;
    struct sampler sampler;
    int64_t max_B, T;
    struct batch batch; /* its arrays are owned by the feed */
    int32_t *ids, *targets;
    float *features, *values;
    int64_t *sample; /* of the places drawn last: n from begin of an epoch */
    bool drawn;
    int64_t epoch, begin, n;
};

/* Room for batches of at most max_B samples of T tokens.  ERR_RESOURCE.  Local. */
int feed_init(struct feed *f, const struct data *d, enum data_part part, uint64_t seed, int64_t T,
              int64_t max_B);
void feed_clear(struct feed *f);

/* Valid targets of the n samples from place begin of an epoch.  Local.  Ends the last batch. */
int64_t feed_count(struct feed *f, int64_t epoch, int64_t begin, int64_t n);

/* Fill the batch with those samples (n ≤ max_B, 0 allowed).  Local.  Borrowed until the next
 * call. */
const struct batch *feed_fill(struct feed *f, int64_t epoch, int64_t begin, int64_t n);
