/* The option tables of the sections that train/ reads itself, and the list of all kinds. */
#include "train/sections.h"

#include "ckpt/ckpt.h"
#include "train/conf.h"

static const char *const device_words[] = {"auto", "cpu", NULL};
static const char *const stop_words[] = {"save", "discard", NULL};
static const char *const matmul_words[] = {"auto", "onednn", "cblas", "plain", NULL};

static const struct opt job_opts[] = {
    STR(job_conf, name, "stretto", "name of the run, in logs and metrics"),
    I64(job_conf, seed, "1337", 0, 9e15, "seed of weights, order and dropout"),
    ENUM(job_conf, device, "auto", device_words, "where to compute"),
    I64_AUTO(job_conf, max_steps, "auto", 1, 1e15, "optimizer steps; auto: until num_epochs"),
    I64_AUTO(job_conf, num_epochs, "auto", 1, 1e9,
             "passes over the data; auto: 1, or until max_steps where that is given"),
    STR_PATH(job_conf, output_dir, "checkpoints/run", "folder of checkpoints and metrics.jsonl"),
    I64_AUTO(job_conf, threads, "auto", 1, 1024, "threads a rank; auto: its share of the cores"),
    I64(job_conf, log_every, "10", 1, 1e9, "steps between lines in a log"),
    F64(job_conf, time_limit, "0", 0, 1e9, "seconds after which to save and stop; 0: none"),
    ENUM(job_conf, on_stop, "save", stop_words, "what a signal or the time limit does first"),
    BOOL(job_conf, profile, "false",
         "write OUTPUT_DIR/profile_RANK.json: where time goes, for Perfetto or chrome://tracing"),
    I64S(job_conf, profile_steps, "3, 2", 1, 1e15, "first step to profile, and how many"),
    ENUM(job_conf, matmul, "auto", matmul_words, "library of matrix products"),
    {.type = OPT_END},
};

static const char *const type_words[] = {"auto", "NO", "MULTI_CPU", "FSDP", "DEEPSPEED", NULL};
static const char *const sum_words[] = {"fp32", "bf16", "fp16", NULL};
static const char *const precision_words[] = {"no", "bf16", "fp16", NULL};

static const char *const node_words[] = {"auto", "true", "false", NULL};
static const char *const copies_words[] = {"node", "rank", NULL};
static const char *const hook_words[] = {"no", "fp16", "bf16", "power_sgd", NULL};

static const struct opt strategy_opts[] = {
    ENUM(strategy_conf, distributed_type, "auto", type_words,
         "NO: one rank; MULTI_CPU: DDP; FSDP, DEEPSPEED: as their plugin says; auto: the plugin's "
         "family if one is named, else NO at one rank, MULTI_CPU at several"),
    ENUM(strategy_conf, mixed_precision, "no", precision_words,
         "compute dtype; no: fp32; bf16, fp16: with fp32 master weights and sums; fp16 scales the "
         "loss"),
    F64_KEY("fp16.loss_scale", strategy_conf, scale.loss_scale, "0", 0, 0x1p64,
            "mixed_precision = fp16: a fixed loss scale; 0: dynamic"),
    I64_KEY("fp16.initial_scale_power", strategy_conf, scale.initial_scale_power, "16", 0, 64,
            "the dynamic scale begins as 2 to this power"),
    I64_KEY("fp16.loss_scale_window", strategy_conf, scale.loss_scale_window, "1000", 1, 1e15,
            "steps without an overflow until the scale doubles"),
    I64_KEY("fp16.hysteresis", strategy_conf, scale.hysteresis, "2", 1, 1e9,
            "overflows until the scale halves"),
    BOOL_KEY("fp16.consecutive_hysteresis", strategy_conf, scale.consecutive_hysteresis, "false",
             "these overflows must follow each other"),
    F64_KEY("fp16.min_loss_scale", strategy_conf, scale.min_loss_scale, "1", 0x1p-24, 0x1p64,
            "smallest dynamic scale; an overflow there ends the run with status 5"),
    STR(strategy_conf, plugin, NULL, "name of the [plugin.NAME] to use"),
    I64_AUTO(strategy_conf, num_processes, "auto", 1, 1e6,
             "ranks that must have been started; auto: any number"),
    I64_AUTO(strategy_conf, num_machines, "auto", 1, 1e6,
             "nodes that must have been started; auto: any number"),
    I64(strategy_conf, gradient_accumulation_steps, "1", 1, 1e6, "micro-batches a step"),
    F64(strategy_conf, gradient_clipping, "0", 0, 1e9, "largest global gradient norm; 0: no limit"),
    BOOL(strategy_conf, sync_each_batch, "false",
         "sum gradients over the ranks at every micro-batch instead of once a step"),
    BOOL(strategy_conf, no_sync, "false",
         "sharded gradients: form whole ones on every rank and sum them once a step, which sends "
         "less and holds more; the others do so unless sync_each_batch"),
    ENUM(strategy_conf, reduce_dtype, "fp32", sum_words,
         "of sums of gradients over the ranks: each is rounded to it, and so is what travels"),
    ENUM(strategy_conf, output_dtype, "fp32", sum_words,
         "a model's outputs, and the gradient with respect to them, are rounded to it before the "
         "loss sees them; fp32: they stay as the last layer's dtype has them"),
    {.name = "activation_checkpointing",
     .aliases = "gradient_checkpointing",
     .type = OPT_BOOL,
     .offset = offsetof(struct strategy_conf, activation_checkpointing),
     .dflt = "false",
     .help = "keep the inputs of blocks only, and compute the rest again in backward"},
    STRS(strategy_conf, activation_checkpointing_classes, NULL,
         "class names of what is computed again; without it the model's own block"),
    I64(strategy_conf, activation_checkpointing_every, "1", 1, 1e6,
        "1: all of these, 2: every second one, …"),
    I64_AUTO(
        strategy_conf, activation_checkpointing_number, "auto", 1, 1e6,
        "at most so many of these, evenly spread; auto: as activation_checkpointing_every says"),
    I64(strategy_conf, local_sgd_steps, "0", 0, 1e9,
        "DDP: ranks take steps of their own and average their weights every so many (LocalSGD); "
        "0: they sum gradients at every step"),
    ENUM(strategy_conf, node_memory, "auto", node_words,
         "ranks of a node read each other's memory instead of sending messages; auto: where they "
         "can"),
    ENUM(strategy_conf, unshard_copies, "node", copies_words,
         "in node memory, gathered weights are there once for all ranks of a node, or once a rank"),
    ENUM(strategy_conf, comm_hook, "no", hook_words,
         "DDP: fp16 or bf16 is reduce_dtype by its name in torch; power_sgd sums narrow products "
         "of matrices' gradients instead of them"),
    I64_KEY("comm_state_option.matrix_approximation_rank", strategy_conf, power_sgd_rank, "1", 1,
            65536, "power_sgd: width of these products"),
    I64_KEY("comm_state_option.start_powersgd_iter", strategy_conf, power_sgd_start, "1000", 0,
            1e15, "power_sgd: first steps that are summed as they are"),
    F64_KEY("comm_state_option.min_compression_rate", strategy_conf, power_sgd_rate, "2", 0, 1e6,
            "power_sgd: a matrix is left as it is where less would be saved"),
    BOOL_KEY("comm_state_option.use_error_feedback", strategy_conf, power_sgd_feedback, "true",
             "power_sgd: what was lost is added to the next gradient"),
    BOOL_KEY("comm_state_option.warm_start", strategy_conf, power_sgd_warm, "true",
             "power_sgd: begin from the last step's directions"),
    {.type = OPT_END},
};

static const struct opt eval_opts[] = {
    I64(eval_conf, every_steps, "0", 0, 1e15, "steps between evaluations; 0: only at the end"),
    I64(eval_conf, batches, "0", 0, 1e15, "batches of an evaluation; 0: the whole part"),
    I64(eval_conf, sample_every, "0", 0, 1e15, "steps between samples of text; 0: none"),
    I64(eval_conf, sample_tokens, "200", 1, 1e6, "tokens of such a sample"),
    {.type = OPT_END},
};

static const char *const resume_words[] = {"auto", "never", "must", NULL};
static const char *const world_words[] = {"keep_global", "keep_per_rank", "error", NULL};
static const char *const error_words[] = {"stop", "continue", NULL};
static const char *const export_words[] = {"none", "safetensors", NULL};
static const char *const async_words[] = {"auto", "true", "false", NULL};
static const char *const files_words[] = {"rank", "node", NULL};
static const char *const final_words[] = {"auto", "FULL_STATE_DICT", "SHARDED_STATE_DICT",
                                          "LOCAL_STATE_DICT", NULL};

static const struct opt ckpt_opts[] = {
    I64(ckpt_conf, every_steps, "0", 0, 1e15, "steps between checkpoints; 0: only at the end"),
    I64(ckpt_conf, keep, "0", 0, 1e9, "newest checkpoints to keep; 0: all"),
    ENUM(ckpt_conf, resume, "auto", resume_words,
         "auto: go on if output_dir holds a checkpoint; must: an error if it does not"),
    BOOL(ckpt_conf, overwrite, "false", "resume = never: move old checkpoints to old-N"),
    ENUM(ckpt_conf, on_world_change, "keep_global", world_words,
         "resuming on another number of ranks: what stays, the global batch or a rank's"),
    ENUM(ckpt_conf, on_save_error, "stop", error_words, "after a save that failed"),
    ENUM(ckpt_conf, final_export, "none", export_words,
         "when the run is finished, write its weights for transformers to output_dir/safetensors"),
    ENUM(
        ckpt_conf, async, "auto", async_words,
        "write behind the training, from a copy; auto: where memory allows; true: an error if not"),
    I64(ckpt_conf, keep_every, "0", 0, 1e15, "steps that are multiples of this stay; 0: none"),
    BOOL(ckpt_conf, save_best, "false",
         "save after an evaluation with a lower loss than all before; the link best is it, and it "
         "stays"),
    ENUM(ckpt_conf, state_dict_type, "FULL_STATE_DICT", ckpt_type_words,
         "one file, a file a rank, or a file a rank that resumes only on the same ranks; FSDP: "
         "SHARDED_STATE_DICT unless its plugin says"),
    ENUM(ckpt_conf, shard_files, "rank", files_words,
         "SHARDED_STATE_DICT: a file a rank, or one for all ranks of a node"),
    ENUM(ckpt_conf, final_state_dict_type, "auto", final_words,
         "of the last checkpoint; auto: as state_dict_type"),
    {.type = OPT_END},
};

const struct section_kind kind_job = {
    .name = "job", .opts = job_opts, .help = "length, seed, folder"};
const struct section_kind kind_strategy = {
    .name = "strategy", .opts = strategy_opts, .help = "how ranks share the work"};
const struct section_kind kind_eval = {
    .name = "eval", .opts = eval_opts, .help = "evaluation on the held-out part"};
const struct section_kind kind_checkpoint = {
    .name = "checkpoint", .opts = ckpt_opts, .help = "saving and resuming"};
const char *run_matmul(const struct run_conf *c)
{
    return matmul_words[c->main.matmul];
}
