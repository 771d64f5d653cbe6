/* Every strategy is bitwise DDP: losses, norms, weights and moments, whatever is sharded, however
 * the model is wrapped, in fp32, bf16 and fp16, with clipping on.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 3
 * RUN: -n 4 */
#include "strategy_run.h"

static const struct {
    const char *name, *keys;
} strategies[] = {
    {"ZeRO-0", DEEPSPEED("0", "")},
    {"ZeRO-1", DEEPSPEED("1", "")},
    {"ZeRO-2", DEEPSPEED("2", "")},
    {"ZeRO-2, small buckets", DEEPSPEED("2", ZERO("reduce_bucket_size", "1"))},
    {"ZeRO-3, all small tensors persist", DEEPSPEED("3", "")},
    {"ZeRO-3, none does", DEEPSPEED("3", SHARD_ALL ZERO("reduce_bucket_size", "5000"))},
    {"ZeRO-3, some do", DEEPSPEED("3", ZERO("stage3_param_persistence_threshold", "1000")
                                           ZERO("stage3_model_persistence_threshold", "1500"))},
    {"ZeRO-3, the last block stays until backward",
     DEEPSPEED("3", SHARD_ALL ZERO("stage3_max_reuse_distance", "1000"))},
    {"ZeRO-1, optimizer on disk", DEEPSPEED("1", ON_DISK("offload_optimizer"))},
    {"ZeRO-2, optimizer on disk, small tiles",
     DEEPSPEED("2", ON_DISK("offload_optimizer") ZERO("sub_group_size", "1024"))},
    {"ZeRO-2, optimizer on disk, small tiles by a thread",
     DEEPSPEED("2", ON_DISK("offload_optimizer") ZERO("sub_group_size", "1024") AIO_THREAD)},
    {"ZeRO-2, optimizer on disk, small transfers one by one",
     DEEPSPEED("2", ON_DISK("offload_optimizer") AIO_SMALL)},
    {"ZeRO-3, optimizer and parameters on disk",
     DEEPSPEED("3", SHARD_ALL ON_DISK("offload_optimizer") ON_DISK("offload_param"))},
    {"ZeRO-3, optimizer and parameters on disk by a thread",
     DEEPSPEED("3", SHARD_ALL ON_DISK("offload_optimizer") ON_DISK("offload_param") AIO_THREAD)},
    {"ZeRO-3 in pairs, optimizer on disk",
     DEEPSPEED("3", ON_DISK("offload_optimizer") ZERO("mics_shard_size", "2"))},
    {"ZeRO-3 in pairs", DEEPSPEED("3", SHARD_ALL ZERO("mics_shard_size", "2"))},
    {"NO_SHARD", FSDP("NO_SHARD", "")},
    {"SHARD_GRAD_OP", FSDP("SHARD_GRAD_OP", "")},
    {"FULL_SHARD", FSDP("FULL_SHARD", "")},
    {"FULL_SHARD, whole", FSDP("FULL_SHARD", WRAP_WORD("NO_WRAP"))},
    {"FULL_SHARD by size",
     FSDP("FULL_SHARD", WRAP_WORD("SIZE_BASED_WRAP") "fsdp_min_num_params = 4000\n")},
    {"FULL_SHARD by classes",
     FSDP("FULL_SHARD", "fsdp_transformer_layer_cls_to_wrap = Linear, MLP, LMHead, Attention\n")},
    {"FULL_SHARD but for some modules",
     FSDP("FULL_SHARD",
          "fsdp_ignored_modules = wte|model[.]embed_tokens|.*[.]q_proj|h[.]1[.]mlp\n")},
    {"SHARD_GRAD_OP by classes",
     FSDP("SHARD_GRAD_OP", "fsdp_transformer_layer_cls_to_wrap = MLP, LMHead\n")},
    {"FULL_SHARD, kept in pairs", "node_memory = false\n" FSDP("FULL_SHARD", KEEP("2"))},
    {"FULL_SHARD by classes, kept in pairs",
     "unshard_copies = rank\n" FSDP(
         "FULL_SHARD",
         KEEP("2") "fsdp_transformer_layer_cls_to_wrap = Linear, MLP, LMHead, Attention\n")},
    {"FULL_SHARD, kept by every rank", FSDP("SHARD_GRAD_OP", KEEP("1"))},
    {"ZeRO-3, kept in pairs",
     "node_memory = false\n" DEEPSPEED(
         "3", HPZ("2") ZERO("stage3_param_persistence_threshold", "1000"))},
    {"ZeRO-3, kept in pairs, parameters on disk",
     "unshard_copies = rank\n" DEEPSPEED("3", SHARD_ALL HPZ("2") ON_DISK("offload_param"))},
    {"HYBRID_SHARD in pairs", FSDP("HYBRID_SHARD", "dp_shard_size = 2\n")},
    {"HYBRID_SHARD_ZERO2 in pairs", FSDP("HYBRID_SHARD_ZERO2", "dp_shard_size = 2\n")},
    {"HYBRID_SHARD alone", FSDP("HYBRID_SHARD", "dp_shard_size = 1\n")},
};

static void compare(struct comm *c, const struct variant *v, const char *what)
{
    struct result ddp = strategy_run(c, v, c->size == 1 ? "" : "distributed_type = MULTI_CPU\n");
    CHECK(ddp.loss[N_STEPS - 1] < ddp.loss[0]);
    CHECK(ddp.norm[0] > 0.5); /* clipping acts */
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strstr(strategies[i].name, "pairs") && c->size % 2 != 0)
            continue;
        char name[160];
        snprintf(name, sizeof name, "%s, %s: DDP's bits", strategies[i].name, what);
        TEST (name) {
            struct result r = strategy_run(c, v, strategies[i].keys);
            check_same(&r, &ddp);
        }
    }
}

/* The summed gradient does not depend on the number of ranks but for rounding. */
static void test_against_one(struct comm *c)
{
    struct comm *self = comm_self();
    char whole[64];
    const struct variant many = {"gpt2", "", 1, "no", ""};
    struct variant one = many;
    one.accumulation = c->size;
    snprintf(whole, sizeof whole, "distributed_type = FSDP\n");
    TEST ("N ranks against one: losses within 1e-6") {
        struct result a = strategy_run(c, &many, whole), b = strategy_run(self, &one, "");
        for (int k = 0; k < N_STEPS; k++)
            CHECK_NEAR(a.loss[k], b.loss[k], 1e-6 * b.loss[k]);
    }
    comm_close(&self);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    const struct variant gpt = {"gpt2", "dropout = 0.1\n", 1, "no", ""};
    const struct variant gpt_twice = {"gpt2", "dropout = 0.1\n", 2, "no", ""};
    const struct variant gpt_untied = {"gpt2", "tie_word_embeddings = false\n", 1, "no", ""};
    const struct variant gpt_groups = {
        "gpt2", "", 2, "bf16",
        "[group.a]\nmatch = wte.weight, h.0.*, h.1.attn.c_attn.*, h.1.ln_1.bias\nfrozen = true\n"
        "[group.b]\nmatch = *.bias\nlr = 2e-2\nweight_decay = 0.2\n"};
    const struct variant gpt_lora = {
        "gpt2",
        "dropout = 0.1\nlora_rank = 4\nlora_alpha = 8\nlora_targets = c_attn, c_fc\n"
        "lora_dropout = 0.2\n",
        1, "bf16", "[group.head]\nmatch = lm_head.weight, *.ln_1.*\nfrozen = false\n"};
    const struct variant llama_lora = {
        "llama", "lora_rank = 2\nlora_targets = q_proj, v_proj, *mlp.up_proj\n", 2, "no",
        "[group.head]\nmatch = lm_head.weight\nfrozen = false\n"};
    const struct variant gpt_bf16 = {"gpt2", "", 2, "bf16", ""};
    compare(c, &gpt, "gpt2");
    compare(c, &gpt_twice, "gpt2, 2 micro-batches");
    compare(c, &gpt_untied, "gpt2, untied");
    compare(c, &gpt_bf16, "gpt2, bf16, 2 micro-batches");
    compare(c, &gpt_groups, "gpt2, bf16, groups, some frozen");
    const struct variant llama = {"llama", "", 2, "no", ""};
    const struct variant llama_bf16 = {"llama", "", 1, "bf16", ""};
    const struct variant llama_groups = {
        "llama", "", 1, "no",
        "[group.a]\nmatch = *.q_proj.weight, *.up_proj.weight, lm_head.*\nfrozen = true\n"};
    compare(c, &gpt_lora, "gpt2, bf16, LoRA");
    compare(c, &llama_lora, "llama, LoRA, 2 micro-batches");
    compare(c, &llama_groups, "llama, groups, some frozen");
    compare(c, &llama, "llama, 2 micro-batches");
    compare(c, &llama_bf16, "llama, bf16");
    const struct variant gpt_fp16 = {"gpt2", "dropout = 0.1\n", 2, "fp16", ""};
    compare(c, &gpt_fp16, "gpt2, fp16, 2 micro-batches");
    const struct variant gpt_output = {"gpt2", "", 2, "fp16\noutput_dtype = bf16", ""};
    compare(c, &gpt_output, "gpt2, fp16, outputs in bf16");
    test_against_one(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
