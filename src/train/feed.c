/* Rows of samples into arrays. */
#include "train/feed.h"

#include <stdlib.h>
#include <string.h>

static int room(void **p, int64_t n, size_t item_bytes)
{
    *p = calloc((size_t)n + 1, item_bytes);
    if (!*p)
        FAIL(ERR_RESOURCE, "no memory for a batch of %lld values", (long long)n);
    return ERR_OK;
}

int feed_init(struct feed *f, const struct data *d, enum data_part part, uint64_t seed, int64_t T,
              int64_t max_B)
{
    bool tokens = d->shape.kind == SAMPLE_TOKENS;
    *f = (struct feed){.data = d, .part = part, .max_B = max_B, .T = tokens ? T : 1};
    f->sampler = (struct sampler){.seed = seed,
                                  .shuffle = part == DATA_TRAIN && d->conf->shuffle,
                                  .n_samples = d->n_samples[part]};
    if (tokens)
        TRY(room((void **)&f->ids, max_B * T, sizeof *f->ids));
    else
        TRY(room((void **)&f->features, max_B * d->shape.n_in, sizeof *f->features));
    if (d->shape.kind == SAMPLE_REGRESSION)
        TRY(room((void **)&f->values, max_B * d->shape.n_out, sizeof *f->values));
    else
        TRY(room((void **)&f->targets, max_B * f->T, sizeof *f->targets));
    return room((void **)&f->sample, max_B, sizeof *f->sample);
}

void feed_clear(struct feed *f)
{
    free(f->ids);
    free(f->targets);
    free(f->features);
    free(f->values);
    free(f->sample);
    *f = (struct feed){0};
}

/* The samples of a batch's places: a step that counts them first finds them when it fills. */
static void draw(struct feed *f, int64_t epoch, int64_t begin, int64_t n)
{
    if (f->drawn && f->epoch == epoch && f->begin == begin && f->n == n)
        return;
    sampler_range(&f->sampler, epoch, begin, n, f->sample);
    f->drawn = true;
    f->epoch = epoch;
    f->begin = begin;
    f->n = n;
}

int64_t feed_count(struct feed *f, int64_t epoch, int64_t begin, int64_t n)
{
    int64_t valid = 0, most = f->max_B > 0 ? f->max_B : 1; /* there is room for one more */
    for (int64_t i = 0; i < n; i += most) {
        int64_t m = n - i < most ? n - i : most;
        draw(f, epoch, begin + i, m);
        for (int64_t b = 0; b < m; b++)
            valid += f->data->ops->n_valid(f->data, f->part, f->sample[b]);
    }
    return valid;
}

const struct batch *feed_fill(struct feed *f, int64_t epoch, int64_t begin, int64_t n)
{
    REQUIRE(n <= f->max_B);
    const struct sample_shape *s = &f->data->shape;
    f->batch = (struct batch){.B = n,
                              .T = f->T,
                              .ids = f->ids,
                              .features = f->features,
                              .targets = f->targets,
                              .values = f->values,
                              .sample = f->sample};
    draw(f, epoch, begin, n);
    for (int64_t b = 0; b < n; b++) {
        int64_t i = f->sample[b];
        struct batch_row row = {
            .ids = f->ids ? f->ids + b * f->T : NULL,
            .targets = f->targets ? f->targets + b * f->T : NULL,
            .features = f->features ? f->features + b * s->n_in : NULL,
            .values = f->values ? f->values + b * s->n_out : NULL,
        };
        f->data->ops->get(f->data, f->part, i, &row);
        f->batch.n_valid += f->data->ops->n_valid(f->data, f->part, i);
    }
    return &f->batch;
}
