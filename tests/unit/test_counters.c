/* What a run allocates is what the plan says, byte for byte, under every strategy: device memory by
 * a counter in front of the allocator, node memory by the kernel's count.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 4 */
#include "strategy_run.h"

static const char job_text[] =
    "[job]\nmax_steps = 100\n"
    "[model]\ntype = gpt2\nn_layer = 3\nn_head = 2\nn_embd = 64\nblock_size = 16\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 2\n[strategy]\n%s";

#define PAIRS "dp_shard_size = 2\n"
#define KEPT KEEP("2")
static const char *const strategies[] = {
    "",
    "distributed_type = MULTI_CPU\nnode_memory = false\n",
    "mixed_precision = bf16\n",
    "mixed_precision = fp16\nactivation_checkpointing = true\n",
    "sync_each_batch = true\ngradient_accumulation_steps = 2\n",
    "local_sgd_steps = 2\n",
    "comm_hook = power_sgd\ncomm_state_option.matrix_approximation_rank = 2\n",
    DEEPSPEED("0", ""),
    DEEPSPEED("1", ""),
    DEEPSPEED("2", ""),
    "node_memory = false\n" DEEPSPEED("2", ""),
    "no_sync = true\ngradient_accumulation_steps = 2\n" DEEPSPEED("2", ""),
    DEEPSPEED("3", ""),
    "mixed_precision = bf16\n" DEEPSPEED("3", SHARD_ALL),
    DEEPSPEED("1", ON_DISK("offload_optimizer")),
    DEEPSPEED("3", SHARD_ALL ON_DISK("offload_optimizer") ON_DISK("offload_param")),
    FSDP("FULL_SHARD", ""),
    "node_memory = false\n" FSDP("FULL_SHARD", ""),
    "unshard_copies = rank\n" FSDP("FULL_SHARD", "fsdp_forward_prefetch = true\n"),
    "mixed_precision = bf16\n" FSDP("SHARD_GRAD_OP", ""),
    FSDP("NO_SHARD", ""),
    "node_memory = false\n" FSDP("FULL_SHARD", KEPT),
    "unshard_copies = rank\nmixed_precision = bf16\n" FSDP("FULL_SHARD", KEPT),
    FSDP("FULL_SHARD", KEPT),
    "node_memory = false\nmixed_precision = bf16\n" DEEPSPEED("3", HPZ("2")),
    FSDP("HYBRID_SHARD", PAIRS),
    "mixed_precision = bf16\n" FSDP("HYBRID_SHARD_ZERO2", PAIRS),
};

static int64_t n_taken;
static const struct memory_ops *own;

static void *count_alloc(size_t n_bytes)
{
    n_taken += (int64_t)n_bytes;
    return own->alloc(n_bytes);
}

static void test_strategy(struct comm *c, const char *keys)
{
    char ini[2048];
    struct train_run t;
    struct memory_ops counting;
    snprintf(ini, sizeof ini, job_text, keys);
    train_set_up(&t, c, ini, NULL);
    train_must(device_open_cpu(1, device_isa_best(), NULL, &t.dev));
    own = t.dev->mem;
    counting = *own;
    counting.alloc = count_alloc;
    t.dev->mem = &counting;
    n_taken = 0;
    train_must(engine_create(&t.run, t.dev, &t.engine));
    struct engine *e = t.engine;
    struct shard_memory z;
    shard_measure(t.run.plan, t.run.model, &t.run.shard, e->group->rank, &z);
    /* scratch of sums, tiles of what is on disk and frames are malloc's */
    int64_t planned = (int64_t)(engine_bytes(e) - z.scratch - z.swap - e->frame_bytes);
    if (n_taken != planned)
        printf("# %s# %lld bytes taken, %lld planned\n", keys, (long long)n_taken,
               (long long)planned);
    CHECK(n_taken == planned);
    if (e->node) {
        int64_t used = (int64_t)node_bytes_used(e->node), all = (int64_t)engine_node_bytes(e);
        c->ops->max_i64(c, &used, 1);              /* one rank of the node has the segment's file */
        CHECK(used >= all && used <= all + 65536); /* and its counters */
    }
    train_step(&t);
    train_step(&t);
    CHECK(n_taken == planned);
    t.dev->mem = own;
    train_close(&t);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        bool pairs = strstr(strategies[i], PAIRS) || strstr(strategies[i], KEPT) ||
                     strstr(strategies[i], HPZ("2"));
        if (pairs && c->size % 2 != 0)
            continue;
        char name[300] = "as planned: ";
        for (const char *s = strategies[i]; *s; s++)
            snprintf(name + strlen(name), sizeof name - strlen(name), "%c", *s == '\n' ? ' ' : *s);
        TEST (name) {
            test_strategy(c, strategies[i]);
        }
    }
    int rc = check_done();
    comm_close(&c);
    return rc;
}
