/* PowerSGD (Vogels et al. 2019, arXiv:1905.13727), DDP's communication hook: in place of a matrix's
 * gradient G (n, m), ranks sum P = G Q (n, r) and Q = G' P (m, r) of a small rank r, and take P Q'
 * for the sum.  What a rank's own part misses is added to its next gradient (error feedback).
 * Where that would save too little, as with vectors, gradients are summed as they are. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan;
struct model;
struct shard;
struct power_sgd;

/* torch's PowerSGDState. */
struct power_sgd_conf {
    bool on;
    int64_t matrix_approximation_rank;
    int64_t start_iter; /* so many steps are summed as they are */
    double min_compression_rate;
    bool use_error_feedback, warm_start;
    uint64_t seed; /* of the first Q */
};

struct shard_conf;

/* Elements of its arrays: (n_train) error, the Qs, the Ps with what is not compressed, and the
 * scratch of sums.  Local. */
struct power_sgd_sizes {
    int64_t error, q, p, scratch;
};
void power_sgd_measure(const struct plan *p, const struct model *m, const struct shard_conf *c,
                       struct power_sgd_sizes *out);

/* Whether the gradient of row is compressed; then *r is its rank.  Local. */
bool power_sgd_compresses(const struct model *m, const struct power_sgd_conf *c, int row,
                          int64_t *r);

/* Memory and tables beside a shard whose policy keeps everything whole.  ERR_RESOURCE.  Local. */
int power_sgd_create(struct shard *s, struct power_sgd **out);
void power_sgd_destroy(struct power_sgd **w);

/* Sum the step's gradients over the ranks of the shard: afterwards every rank has all of the sum.
 * Collective on the shard's comm. */
void power_sgd_sum(struct power_sgd *w, int64_t step);

/* Make the errors of all ranks one: each keeps an equal share of their sum, which is what is stored
 * and what counts.  Collective on the shard's comm. */
void power_sgd_settle(struct power_sgd *w);

/* Errors and Qs were read from a checkpoint of n_saved ranks: go on from them, unless they had not
 * begun.  Local. */
void power_sgd_loaded(struct power_sgd *w, int64_t n_saved);

/* The ranks' errors together as of the last settle, laid out as gradients; Q (r, m) of row.  They
 * may be written, on all ranks alike.  NULL: there is none.  Local. */
float *power_sgd_error(struct power_sgd *w);
float *power_sgd_q(struct power_sgd *w, int row);
