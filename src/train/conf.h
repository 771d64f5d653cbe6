/* A run as the job file describes it: every section read into its struct, checked one by one and
 * against each other.  No memory for values, no data, no device. */
#pragma once
#include "data/data.h"
#include "job/job.h"
#include "model/model.h"
#include "optim/group.h"
#include "optim/loss_scale.h"

struct job_conf {
    const char *name, *output_dir;
    int64_t seed;
    int device;                    /* enum device_choice */
    int64_t max_steps, num_epochs; /* OPT_AUTO_I64: not given */
    int64_t threads;               /* OPT_AUTO_I64: from the binding */
    int64_t log_every;
    double time_limit; /* seconds; 0: none */
    int on_stop;       /* enum on_stop */
    int matmul;        /* index into matmul words */
    bool profile;
    struct opt_i64s profile_steps; /* first step, number of steps */
};
enum on_stop { ON_STOP_SAVE, ON_STOP_DISCARD };

enum distributed_type { TYPE_AUTO, TYPE_NO, TYPE_MULTI_CPU, TYPE_FSDP, TYPE_DEEPSPEED };
enum node_memory { NODE_MEMORY_AUTO, NODE_MEMORY_TRUE, NODE_MEMORY_FALSE };
enum unshard_copies { COPIES_NODE, COPIES_RANK };
enum sum_dtype { SUM_FP32, SUM_BF16, SUM_FP16 };
enum precision { PRECISION_NO, PRECISION_BF16, PRECISION_FP16 };

struct strategy_conf {
    int distributed_type;         /* enum distributed_type */
    int mixed_precision;          /* enum precision */
    struct loss_scale_conf scale; /* fp16 */
    const char *plugin;
    int64_t num_processes, num_machines; /* OPT_AUTO_I64: whatever was started */
    int64_t gradient_accumulation_steps;
    double gradient_clipping; /* 0: none */
    bool sync_each_batch, no_sync;
    int reduce_dtype; /* enum sum_dtype */
    int output_dtype; /* enum sum_dtype */
    bool activation_checkpointing;
    struct opt_strs activation_checkpointing_classes; /* empty: the model's blocks */
    int64_t activation_checkpointing_every;
    int64_t activation_checkpointing_number; /* OPT_AUTO_I64: as every says */
    int64_t local_sgd_steps;                 /* 0: sums at every step */
    int node_memory;                         /* enum node_memory */
    int unshard_copies;                      /* enum unshard_copies */
    int comm_hook;                           /* enum comm_hook */
    int64_t power_sgd_rank, power_sgd_start;
    double power_sgd_rate;
    bool power_sgd_feedback, power_sgd_warm;
};
enum comm_hook { HOOK_NO, HOOK_FP16, HOOK_BF16, HOOK_POWER_SGD };

struct eval_conf {
    int64_t every_steps; /* 0: only at the end */
    int64_t batches;     /* 0: the whole part */
    int64_t sample_every;
    int64_t sample_tokens;
};

struct ckpt_conf {
    int64_t every_steps; /* 0: only at the end */
    int64_t keep;        /* 0: all */
    int resume;          /* enum resume */
    bool overwrite;
    int on_world_change; /* enum world_change */
    int on_save_error;   /* enum on_save_error */
    int final_export;    /* enum final_export */
    int async;           /* enum save_async */
    int64_t keep_every;  /* 0: none */
    bool save_best;
    int shard_files;           /* enum shard_files */
    int state_dict_type;       /* enum ckpt_type */
    int final_state_dict_type; /* 0: as state_dict_type; else 1 + enum ckpt_type */
    int final_type;            /* enum ckpt_type: what follows from both */
};
enum shard_files { FILES_RANK, FILES_NODE };
enum save_async { ASYNC_AUTO, ASYNC_TRUE, ASYNC_FALSE };
enum resume { RESUME_AUTO, RESUME_NEVER, RESUME_MUST };
enum world_change { WORLD_KEEP_GLOBAL, WORLD_KEEP_PER_RANK, WORLD_ERROR };
enum final_export { EXPORT_NONE, EXPORT_SAFETENSORS };
enum on_save_error { SAVE_ERROR_STOP, SAVE_ERROR_CONTINUE };

/* Keys of [model] that every family has. */
struct model_common_conf {
    int type;                                             /* index into model_list */
    const char *data, *eval_data, *optimizer, *scheduler; /* names of sections, or NULL */
    int64_t seed;                                         /* OPT_AUTO_I64: the job's */
    bool trainable;
    int64_t lora_rank; /* 0: no adapters */
    double lora_alpha, lora_dropout;
    struct opt_strs lora_targets;
    const char *init_from; /* what the first weights are read from, or NULL */
    struct opt_strs init_missing, init_unexpected; /* shell patterns of tensors */
    bool init_grow_vocab;
};

struct plugin;

struct data_choice {
    const char *name; /* of [data.NAME], NULL for [data] */
    struct data_conf conf;
    const struct data_ops *ops;
    void *own; /* conf of this type */
};

struct run_conf {
    const struct job *job;
    struct job_conf main;
    struct strategy_conf strategy;
    struct eval_conf eval;
    struct ckpt_conf ckpt;
    const char *model_name; /* of [model.NAME], NULL for [model] */
    struct model_common_conf model;
    const struct model_family *family;
    void *family_conf;
    struct lora lora;                   /* rank 0: none */
    struct data_choice data, eval_data; /* eval_data.ops NULL: the same file's held-out part */
    const char *optim_name, *schedule_name;
    struct optim_conf optim;
    const struct optim_ops *optim_ops;
    void *optim_own;
    struct schedule_conf schedule;
    struct groups groups;
    const struct plugin *plugin; /* the one in use, or NULL */
    bool batch_is_fixed;         /* the samples of a step are given: no other world changes them */
};

/* Every kind of section there is, NULL-terminated: for job_load, job_check and --help. */
const struct section_kind *const *run_kinds(struct arena *a); /* Local. */

/* Read and check all sections of a job for n_ranks ranks (0: not known, so that no batch is divided
 * among them).  ERR_USAGE names file, line, key, value and what is
 * allowed; ERR_DATA if the data's type cannot be told.  Local. */
int run_conf_read(const struct job *j, int n_ranks, struct arena *a, struct run_conf *out);

/* [model] alone: model_name, model, family, family_conf.  Local. */
int run_conf_model(const struct job *j, struct arena *a, struct run_conf *out);

/* [job] alone.  Local. */
int run_conf_job(const struct job *j, struct job_conf *out);

/* The matrix product library that the job asks for, as device_open_cpu() wants it.  Local. */
const char *run_matmul(const struct run_conf *c);
