/* Private to train/: DeepSpeed's keys as they were read, and those that stand for keys of other
 * sections. */
#pragma once
#include "train/conf.h"
#include "train/plugin.h"

struct deepspeed_conf {
    int64_t stage;
    /* batch: OPT_AUTO_I64 where auto or not given */
    int64_t train_batch_size, micro_batch, accumulation;
    const char *clipping, *steps_per_print;
    const char *optim_type, *lr, *weight_decay, *betas, *eps, *bias_correction;
    const char *momentum, *dampening, *nesterov;
    bool torch_adam, adam_w_mode;
    const char *schedule_type, *warmup_min_lr, *warmup_max_lr, *warmup_num_steps, *warmup_type;
    const char *total_num_steps, *warmup_min_ratio, *cos_min_ratio;
    const char *cycle_min_lr, *cycle_max_lr, *cycle_first_step_size, *cycle_second_step_size;
    const char *cycle_first_stair_count, *cycle_second_stair_count, *decay_step_size;
    const char *decay_lr_rate, *cycle_momentum, *cycle_min_mom, *cycle_max_mom, *decay_mom_rate;
    const char *lr_range_test_min_lr, *lr_range_test_step_size, *lr_range_test_step_rate;
    const char *lr_range_test_staircase;
    int64_t last_batch_iteration;
    /* sizes in elements; OPT_AUTO_I64: from the model's width */
    int64_t reduce_bucket_size, allgather_bucket_size, prefetch_bucket_size;
    int64_t persist_elems, persist_total, reuse_elems, live_elems;
    int64_t sub_group_size, mics_shard_size, hpz_partition_size, granularity;
    int offload_optimizer, offload_param; /* enum offload_device */
    const char *optimizer_nvme, *param_nvme;
    int64_t optimizer_buffers, param_buffers, param_buffer_size, max_in_cpu;
    bool optimizer_pin, param_pin, pipeline_read, pipeline_write, fast_init, super_offload;
    double ratio, cores_perc;
    int io_method; /* of offload_methods */
    int64_t block_size, queue_depth, intra_op_parallelism;
    bool single_submit, overlap_events, use_gds;
    int gather_16bit;
    bool contiguous_gradients, reduce_scatter, multi_rank_bucket, allgather_partitions;
    bool overlap_comm, load_from_fp32, elastic_checkpoint, round_robin, memory_efficient_linear;
    bool all_reduce_fetch, allgather_sequential, ignore_unused, legacy_stage1, pipeline_loading;
    bool mics_hierarchical, quantized_weights, quantized_fixed_weights, quantized_gradients;
    bool wall_clock_breakdown, dump_state, drop_last, allow_untested, force_cpu_optimizer;
    bool disable_allgather, prescale, zero3_init, comms_logger, flops_profiler;
    double predivide;
    int allreduce_op, communication_dtype, accum_dtype;
    const char *fp16_enabled, *bf16_enabled;
    const char *loss_scale, *initial_scale_power, *loss_scale_window, *hysteresis;
    const char *consecutive_hysteresis, *min_loss_scale, *number_checkpoints;
    bool fp16_auto_cast, fp16_master, bf16_immediate, bf16_check, bf16_master, bf16_states;
    bool partition_activations, cpu_checkpointing, contiguous_memory, synchronize_boundary;
    bool profile_checkpointing;
    const char *config_file, *hostfile, *exclusion, *inclusion, *launcher, *moe_classes;
};
enum offload_device { OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME };

extern const struct opt deepspeed_opts[];

/* The values of keys that stand for others must be such as those take.  Local. */
int deepspeed_check_adopted(const struct run_conf *c, const struct plugin *p);

/* Let keys stand for those of [strategy], [data], [job], [optimizer] and [scheduler], and divide
 * train_batch_size among n_ranks (0: not known, then not at all).  ERR_USAGE names both lines where
 * one thing is set twice.  Local. */
int deepspeed_adopt(struct run_conf *c, const struct plugin *p, int n_ranks, struct arena *a);
