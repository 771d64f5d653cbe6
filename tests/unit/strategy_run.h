/* A few steps of a small model under a strategy, and everything that must have the same bits. */
#pragma once
#include "train_run.h"

enum { N_STEPS = 4 };

struct result {
    double loss[N_STEPS], norm[N_STEPS], eval;
    uint64_t master, moments;
};

static const char strategy_job[] =
    "[job]\nmax_steps = 100\n"
    "[model]\ntype = %s\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\n%s"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 3\n"
    "[strategy]\ngradient_accumulation_steps = %d\nsync_each_batch = true\n"
    "gradient_clipping = 0.5\nmixed_precision = %s\n%s"
    "[optimizer]\ntype = AdamW\nlr = 1e-2\nweight_decay = 0.1\n%s";

struct variant {
    const char *model, *model_keys;
    int accumulation;
    const char *precision;
    const char *groups;
};

static inline struct result strategy_run(struct comm *c, const struct variant *v,
                                         const char *strategy)
{
    char ini[2048];
    struct train_run t;
    struct result r;
    struct eval_report e;
    snprintf(ini, sizeof ini, strategy_job, v->model, v->model_keys, v->accumulation, v->precision,
             strategy, v->groups);
    train_open(&t, c, ini, NULL);
    for (int i = 0; i < N_STEPS; i++) {
        struct step_report s = train_step(&t);
        r.loss[i] = s.loss;
        r.norm[i] = s.grad_norm;
    }
    engine_eval(t.engine, 3, &e);
    r.eval = e.loss;
    r.master = train_hash(&t, SHARD_MASTER);
    r.moments = train_hash(&t, SHARD_STATE) ^ train_hash(&t, SHARD_STATE + 1);
    train_close(&t);
    return r;
}

#define FSDP(strategy, more)                                                                       \
    "distributed_type = FSDP\n[plugin.f]\ntype = fsdp\nfsdp_sharding_strategy = " strategy "\n" more
#define DEEPSPEED(stage, more)                                                                     \
    "distributed_type = DEEPSPEED\n[plugin.d]\ntype = deepspeed\nzero_optimization.stage = " stage \
    "\n" more
#define ZERO(key, value) "zero_optimization." key " = " value "\n"
#define ON_DISK(what) ZERO(what ".device", "nvme") ZERO(what ".nvme_path", "build")
#define AIO_THREAD "aio.io_method = thread\n"
#define AIO_SMALL                                                                                  \
    "aio.block_size = 4096\naio.queue_depth = 2\naio.single_submit = true\n"                       \
    "aio.overlap_events = false\n"
#define SHARD_ALL ZERO("stage3_param_persistence_threshold", "0")
#define KEEP(n) "fsdp_reshard_after_forward = " n "\n"
#define HPZ(n) ZERO("zero_hpz_partition_size", n)
#define WRAP_WORD(word) "fsdp_auto_wrap_policy = " word "\n"

/* Losses, norms, weights and moments of r are those of ddp. */
static inline void check_same(const struct result *r, const struct result *ddp)
{
    for (int k = 0; k < N_STEPS; k++)
        CHECK(r->loss[k] == ddp->loss[k] && r->norm[k] == ddp->norm[k]);
    CHECK(r->eval == ddp->eval);
    CHECK(r->master == ddp->master);
    CHECK(r->moments == ddp->moments);
}
