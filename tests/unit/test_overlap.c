/* When units are gathered and summed, and through which memory, changes no bit: every strategy,
 * prefetch mode and wrap, over messages and over node memory with a copy a node or a rank, is DDP.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 3
 * RUN: -n 4
 * RUN: -n 8 */
#include "strategy_run.h"

#include "parallel/flow.h"

static const struct {
    const char *name, *keys;
} memories[] = {
    {"messages", "node_memory = false\n"},
    {"node memory", "node_memory = true\n"},
    {"node memory, a copy a rank", "node_memory = true\nunshard_copies = rank\n"},
};

#define PRE "fsdp_backward_prefetch = BACKWARD_PRE\n"
#define POST "fsdp_backward_prefetch = BACKWARD_POST\n"
#define NONE "fsdp_backward_prefetch = NO_PREFETCH\n"
#define FORWARD "fsdp_forward_prefetch = true\n"
#define TWO "limit_all_gathers = false\n"
#define CLASSES "fsdp_transformer_layer_cls_to_wrap = Linear, MLP, LMHead, Attention\n"

static const struct {
    const char *name, *keys;
} strategies[] = {
    {"DDP", "distributed_type = MULTI_CPU\n"},
    {"ZeRO-1", DEEPSPEED("1", "")},
    {"ZeRO-2, sums at once", DEEPSPEED("2", ZERO("overlap_comm", "false"))},
    {"ZeRO-3, some persist", DEEPSPEED("3", ZERO("stage3_param_persistence_threshold", "1000"))},
    {"ZeRO-3, all gathered ahead", DEEPSPEED("3", SHARD_ALL)},
    {"ZeRO-3, nothing ahead", DEEPSPEED("3", SHARD_ALL ZERO("stage3_prefetch_bucket_size", "0"))},
    {"FULL_SHARD, none", FSDP("FULL_SHARD", NONE)},
    {"FULL_SHARD, pre", FSDP("FULL_SHARD", PRE FORWARD)},
    {"FULL_SHARD, post, two ahead", FSDP("FULL_SHARD", POST FORWARD TWO)},
    {"FULL_SHARD by classes, pre, two ahead", FSDP("FULL_SHARD", PRE FORWARD TWO CLASSES)},
    {"FULL_SHARD by classes, post", FSDP("FULL_SHARD", POST CLASSES)},
    {"SHARD_GRAD_OP by classes", FSDP("SHARD_GRAD_OP", FORWARD CLASSES)},
    {"FULL_SHARD, none, kept in pairs", FSDP("FULL_SHARD", NONE KEEP("2"))},
    {"FULL_SHARD, pre, kept in fours", FSDP("FULL_SHARD", PRE FORWARD KEEP("4"))},
    {"FULL_SHARD by classes, post, two ahead, kept in pairs",
     FSDP("FULL_SHARD", POST FORWARD TWO CLASSES KEEP("2"))},
    {"ZeRO-3, all gathered ahead, kept in pairs", DEEPSPEED("3", SHARD_ALL HPZ("2"))},
    {"HYBRID_SHARD in fours, kept in pairs",
     FSDP("HYBRID_SHARD", PRE "dp_shard_size = 4\n" KEEP("2"))},
    {"HYBRID_SHARD in pairs", FSDP("HYBRID_SHARD", FORWARD "dp_shard_size = 2\n")},
    {"HYBRID_SHARD in fours", FSDP("HYBRID_SHARD", NONE "dp_shard_size = 4\n")},
};

static bool fits(const struct comm *c, const char *name)
{
    int group = strstr(name, "fours") ? 4 : strstr(name, "pairs") ? 2 : 1;
    return c->size % group == 0;
}

/* more: keys of [strategy] for all. */
static void compare(struct comm *c, const struct variant *v, const char *more, const char *what)
{
    char keys[512], name[200];
    snprintf(keys, sizeof keys, "node_memory = false\n%s%s", more,
             c->size == 1 ? "" : "distributed_type = MULTI_CPU\n");
    struct result ddp = strategy_run(c, v, keys);
    CHECK(ddp.loss[N_STEPS - 1] < ddp.loss[0]);
    for (size_t m = 0; m < sizeof memories / sizeof *memories; m++)
        for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
            if (!fits(c, strategies[i].name))
                continue;
            snprintf(keys, sizeof keys, "%s%s%s", more, memories[m].keys, strategies[i].keys);
            snprintf(name, sizeof name, "%s, %s, %s: DDP's bits", strategies[i].name,
                     memories[m].name, what);
            TEST (name) {
                struct result r = strategy_run(c, v, keys);
                check_same(&r, &ddp);
            }
        }
}

/* Units that are gathered at once, beside those that stay: what limit_all_gathers is about. */
struct watch {
    int now, most, early, left, again;
};

static void watch_gather(void *self, int unit, bool again, bool now)
{
    struct watch *w = self;
    (void)unit;
    w->again += again;
    w->now++;
    w->most = w->now > w->most ? w->now : w->most;
    w->early += !now;
}

static void watch_release(void *self, int unit, bool leaves)
{
    struct watch *w = self;
    (void)unit;
    w->left += leaves;
    w->now--;
}

static void nothing(void *self, int unit)
{
    (void)self;
    (void)unit;
}

static void no_sum(void *self, int unit, bool now)
{
    (void)self;
    (void)unit;
    (void)now;
}

static struct watch watch(struct train_run *t, enum prefetch backward, bool forward, int ahead)
{
    static const struct flow_ops ops = {.gather = watch_gather,
                                        .need = nothing,
                                        .release = watch_release,
                                        .form = nothing,
                                        .sum = no_sum,
                                        .end_sum = nothing};
    struct watch w = {0};
    struct flow f;
    const struct overlap o = {backward, forward, ahead, INT64_MAX, true};
    const struct plan *p = t->run.plan;
    flow_init(&f, p, &o, true, &ops, &w);
    flow_before_forward(&f, 0, true);
    for (int u = 1; u < p->n_units; u++) {
        flow_before_forward(&f, u, true);
        flow_after_forward(&f, u, true);
    }
    flow_after_forward(&f, 0, true);
    flow_before_backward(&f, 0);
    for (int u = p->n_units - 1; u > 0; u--) {
        flow_before_backward(&f, u);
        flow_after_backward(&f, u, true);
    }
    flow_after_backward(&f, 0, true);
    flow_clear(&f);
    CHECK(w.now == 0);
    return w;
}

static void test_flow(void)
{
    static const char ini[] =
        "[job]\nmax_steps = 1\n"
        "[model]\ntype = gpt2\nn_layer = 6\nn_head = 2\nn_embd = 32\nblock_size = 16\n"
        "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 3\n"
        "[strategy]\ndistributed_type = FSDP\n";
    struct comm *self = comm_self();
    struct train_run t;
    train_open(&t, self, ini, NULL);
    TEST ("at most two units are gathered beside the root, three without the limit") {
        CHECK(watch(&t, PREFETCH_NONE, false, 1).most == 1 + 1);
        CHECK(watch(&t, PREFETCH_PRE, true, 1).most == 1 + 2);
        CHECK(watch(&t, PREFETCH_POST, false, 1).most == 1 + 1);
        CHECK(watch(&t, PREFETCH_PRE, true, 2).most == 1 + 3);
    }
    TEST ("what is gathered before it is needed: all but the first of each direction") {
        CHECK(watch(&t, PREFETCH_NONE, false, 1).early == 0);
        CHECK(watch(&t, PREFETCH_PRE, false, 1).early == 6);
        CHECK(watch(&t, PREFETCH_POST, false, 1).early == 5);
        CHECK(watch(&t, PREFETCH_PRE, true, 1).early == 12);
    }
    TEST ("every unit but the root leaves in forward and is gathered again in backward") {
        struct watch w = watch(&t, PREFETCH_PRE, true, 1);
        CHECK(w.left == 6 && w.again == 6);
        w = watch(&t, PREFETCH_POST, false, 2);
        CHECK(w.left == 6 && w.again == 6);
    }
    TEST ("the plan's bytes: one more unit for a prefetch, one more gradient behind the next") {
        const struct plan *p = t.run.plan;
        size_t unit = (size_t)p->unit[1].n_elem * 4, root = (size_t)p->unit[0].n_elem * 4;
        struct flow_needs n;
        flow_measure(p, &(struct overlap){PREFETCH_NONE, false, 1, INT64_MAX, false}, true, 4, &n);
        CHECK(n.gathered == root + unit && n.grads == root + unit);
        flow_measure(p, &(struct overlap){PREFETCH_PRE, true, 1, INT64_MAX, true}, true, 4, &n);
        CHECK(n.gathered == root + 2 * unit && n.grads == root + 2 * unit);
        CHECK(4 * n.n_first == (int64_t)(root + 6 * unit) && 4 * n.n_again == (int64_t)(6 * unit));
    }
    train_close(&t);
    comm_close(&self);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    const struct variant gpt = {"gpt2", "dropout = 0.1\n", 2, "bf16", ""};
    const struct variant llama = {"llama", "", 1, "no", ""};
    const struct variant frozen = {
        "gpt2", "", 1, "bf16",
        "[group.a]\nmatch = wte.weight, h.0.*, h.1.attn.c_attn.*\nfrozen = true\n"};
    test_flow();
    if (c->size > 1) {
        compare(c, &gpt, "", "gpt2, bf16, 2 micro-batches");
        compare(c, &llama, "activation_checkpointing = true\n", "llama, run again");
        compare(c, &frozen, "", "gpt2, bf16, some frozen");
    }
    int rc = check_done();
    comm_close(&c);
    return rc;
}
