/* Weights that leave after forward come back from a few neighbours, who keep a part each: DDP's
 * bits on nodes of every layout, the bytes and memory that the plan counts, and a run that goes on.
 * RUN: -n 4
 * RUN: -n 8 */
#include "strategy_run.h"

#define COPIES "node_memory = true\n"
#define A_RANK "node_memory = true\nunshard_copies = rank\n"
#define MESSAGES "node_memory = false\n"
#define CLASSES "fsdp_transformer_layer_cls_to_wrap = Linear, MLP, LMHead, Attention\n"

/* The node of each rank, as a test pretends. */
static int of_all(int rank)
{
    (void)rank;
    return 0;
}
static int of_two(int rank)
{
    return rank / 2;
}
static int of_four(int rank)
{
    return rank / 4;
}
static int in_turns(int rank)
{
    return rank % 2;
}
static int uneven(int rank)
{
    return rank >= 3;
}

static const struct {
    const char *name;
    int (*node)(int rank);
} layouts[] = {
    {"one node", of_all},        {"nodes of two", of_two},
    {"nodes of four", of_four},  {"nodes that take turns", in_turns},
    {"three on a node", uneven},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static void pretend(struct comm *c, int (*node)(int rank))
{
    c->node = -1;
    c->node_size = c->node_rank = 0;
    for (int r = 0; r < c->size; r++) {
        if (node(r) != node(c->rank))
            continue;
        c->node = c->node < 0 ? r : c->node;
        c->node_rank += r < c->rank;
        c->node_size++;
    }
}

static const struct {
    const char *name, *keys;
    int size;
} strategies[] = {
    {"FULL_SHARD kept in pairs", FSDP("FULL_SHARD", KEEP("2")), 2},
    {"FULL_SHARD by classes, forward prefetch, kept in pairs",
     FSDP("FULL_SHARD", CLASSES "fsdp_forward_prefetch = true\n"
                                "fsdp_backward_prefetch = BACKWARD_POST\n" KEEP("2")),
     2},
    {"FULL_SHARD without prefetch, kept in fours",
     FSDP("FULL_SHARD", "fsdp_backward_prefetch = NO_PREFETCH\n" KEEP("4")), 4},
    {"ZeRO-3 kept in pairs",
     DEEPSPEED("3", ZERO("stage3_param_persistence_threshold", "1000") HPZ("2")), 2},
};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies, N_VARIANTS = 4 };

static const struct {
    const char *name, *more;
    struct variant v;
} variants[N_VARIANTS] = {
    {"gpt2, bf16, 4 micro-batches", "", {"gpt2", "dropout = 0.1\n", 4, "bf16", ""}},
    {"llama, run again", "activation_checkpointing = true\n", {"llama", "", 1, "no", ""}},
    {"gpt2, bf16, some frozen, 2 micro-batches",
     "",
     {"gpt2", "", 2, "bf16",
      "[group.a]\nmatch = wte.weight, h.0.*, h.1.attn.c_attn.*\nfrozen = true\n"}},
    {"llama, bf16, 2 micro-batches, run again",
     "activation_checkpointing = true\n",
     {"llama", "", 2, "bf16", ""}},
};

/* Every layout, with gathered weights once a node and once a rank. */
static void test_bits(struct comm *c)
{
    struct result ddp[N_VARIANTS];
    char keys[512], name[200];
    for (int v = 0; v < N_VARIANTS; v++) {
        snprintf(keys, sizeof keys, MESSAGES "%sdistributed_type = MULTI_CPU\n", variants[v].more);
        ddp[v] = strategy_run(c, &variants[v].v, keys);
        CHECK(ddp[v].loss[N_STEPS - 1] < ddp[v].loss[0]);
    }
    static const char *const memories[] = {COPIES, A_RANK, MESSAGES};
    static const char *const words[] = {"once a node", "once a rank", "messages"};
    for (int at = 0; at < N_LAYOUTS * N_STRATEGIES * 3; at++) {
        int layout = at / N_STRATEGIES / 3, s = at / 3 % N_STRATEGIES, m = at % 3;
        int v = (layout + s + m) % N_VARIANTS;
        if (strategies[s].size >= c->size || (m == 2 && layout > 0))
            continue;
        snprintf(keys, sizeof keys, "%s%s%s", variants[v].more, memories[m], strategies[s].keys);
        snprintf(name, sizeof name, "%s, %s, %s, %s: DDP's bits", layouts[layout].name, words[m],
                 strategies[s].name, variants[v].name);
        TEST (name) {
            pretend(c, layouts[layout].node);
            struct result r = strategy_run(c, &variants[v].v, keys);
            check_same(&r, &ddp[v]);
        }
    }
    pretend(c, of_all);
}

static const char job_text[] =
    "[job]\nmax_steps = 100\noutput_dir = %s\n"
    "[model]\ntype = gpt2\nn_layer = 3\nn_head = 2\nn_embd = 64\nblock_size = 16\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 2\n"
    "[strategy]\n%s";

static void set_up(struct train_run *t, struct comm *c, const char *folder, const char *keys,
                   struct ckpt *from)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, folder, keys);
    train_open(t, c, ini, from);
}

/* Where the weights of a unit are while they are away, and where whole ones are. */
static void test_places(struct comm *c)
{
    static const struct {
        int layout;
        const char *keys;
        int second_size;
        bool node_copy;
    } cases[] = {
        {0, COPIES FSDP("FULL_SHARD", KEEP("2")), 0, true}, /* nothing to spare */
        {0, A_RANK FSDP("FULL_SHARD", KEEP("2")), 2, false},
        {1, COPIES FSDP("FULL_SHARD", KEEP("2")), 2, true},
        {1, COPIES FSDP("FULL_SHARD", KEEP("4")), 4, true}, /* two nodes, of four ones */
        {2, COPIES FSDP("FULL_SHARD", KEEP("4")), 4, true},
        {2, COPIES FSDP("FULL_SHARD", KEEP("2")), 2, false}, /* half a node */
        {3, COPIES FSDP("FULL_SHARD", KEEP("2")), 2, false},
        {4, COPIES FSDP("FULL_SHARD", KEEP("2")), 2, false},
    };
    TEST (
        "who keeps what leaves: the neighbours that were asked for, on no more nodes than need be")
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct train_run t;
            if (cases[i].second_size >= c->size || (cases[i].layout == 2 && c->size < 8))
                continue;
            pretend(c, layouts[cases[i].layout].node);
            set_up(&t, c, "none", cases[i].keys, NULL);
            const struct engine *e = t.engine;
            int64_t node = c->node, most[2] = {node, -node};
            CHECK(t.run.shard.second_size == cases[i].second_size);
            CHECK(e->shard->has_node_copy == cases[i].node_copy);
            CHECK((e->second != NULL) == (cases[i].second_size > 0));
            CHECK(!e->second || e->second->size == cases[i].second_size);
            CHECK(!e->second || e->second->rank == c->rank % cases[i].second_size);
            if (e->second)
                e->second->ops->max_i64(e->second, most, 2);
            CHECK(cases[i].layout != 1 || cases[i].second_size != 2 || most[0] == -most[1]);
            train_step(&t);
            train_close(&t);
        }
    pretend(c, of_all);
}

/* Bytes that the ranks of a communicator gather together. */
static double n_gathered[2];
static struct comm_ops watching[2];
static const struct comm_ops *watched[2];

static void watch_all(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    n_gathered[0] += (double)cut[c->size] * (double)elem_bytes;
    watched[0]->all_gather(c, buf, cut, elem_bytes);
}

static void watch_second(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes)
{
    n_gathered[1] += (double)cut[c->size] * (double)elem_bytes;
    watched[1]->all_gather(c, buf, cut, elem_bytes);
}

static void watch(struct comm *c, int i,
                  void (*f)(struct comm *c, void *buf, const int64_t *cut, size_t elem_bytes))
{
    n_gathered[i] = 0;
    if (!c)
        return;
    watched[i] = c->ops;
    watching[i] = *c->ops;
    watching[i].all_gather = f;
    c->ops = &watching[i];
}

/* Elements of units that leave after forward. */
static int64_t away(const struct plan *p)
{
    int64_t n = 0;
    for (int u = 0; u < p->n_units; u++)
        n += p->unit[u].keep || p->unit[u].persists ? 0 : p->unit[u].n_elem;
    return n;
}

/* One rank's second parts, and what the ranks of its group have together. */
static void check_memory(const struct train_run *t)
{
    const struct shard_conf *conf = &t->run.shard;
    struct shard_memory z;
    int64_t n_bytes;
    shard_measure(t->run.plan, t->run.model, conf, t->engine->group->rank, &z);
    n_bytes = (int64_t)z.second;
    t->engine->second->ops->sum_i64(t->engine->second, &n_bytes, 1);
    CHECK(z.second > 0);
    CHECK(n_bytes == away(t->run.plan) * (int64_t)dtype_bytes(conf->compute));
}

static void check_traffic(struct comm *c, int k, const char *keys)
{
    struct train_run t;
    struct shard_traffic x, plain;
    pretend(c, of_two);
    set_up(&t, c, "none", keys, NULL);
    struct engine *e = t.engine;
    const struct shard_world w = {t.run.batching.accumulation, 1, 2};
    train_step(&t);
    watch(e->group, 0, watch_all);
    watch(e->second, 1, watch_second);
    train_step(&t);
    e->group->ops = watched[0];
    e->second->ops = watched[1];
    shard_count_traffic(t.run.plan, t.run.model, &t.run.shard, &w, &x);
    double P = c->size, nodes = P / 2, again = n_gathered[1];
    CHECK_NEAR(n_gathered[0] * (P - 1) / P + again * (k - 1) / k, x.gathered, 1);
    CHECK(again > 0 && n_gathered[0] > 0);
    check_memory(&t);
    /* what would be gathered from all ranks comes from a group of one node or two */
    struct shard_conf conf = t.run.shard;
    conf.second_size = 0;
    shard_count_traffic(t.run.plan, t.run.model, &conf, &w, &plain);
    CHECK_NEAR(plain.gathered - x.gathered, again * ((P - 1) / P - (k - 1.0) / k), 1);
    double far = conf.node_memory ? (nodes - 1) / nodes : (P - 1) / P;
    double near = k == 2 ? 0 : conf.node_memory ? .5 : (k - 1.0) / k;
    CHECK_NEAR(plain.left - x.left, again * (far - near), 1);
    train_close(&t);
    pretend(c, of_all);
}

static void test_traffic(struct comm *c)
{
    static const char *const memories[] = {COPIES, A_RANK, MESSAGES};
    static const char *const more[] = {"",
                                       "gradient_accumulation_steps = 3\nmixed_precision = bf16\n",
                                       "activation_checkpointing = true\n"};
    for (int i = 0; i < 9; i++) {
        char keys[512], name[200];
        snprintf(name, sizeof name, "bytes and memory as planned, %d", i);
        TEST (name)
            for (int s = 0; s < N_STRATEGIES; s++) {
                if (strategies[s].size >= c->size)
                    continue;
                snprintf(keys, sizeof keys, "%s%s%s", memories[i % 3], more[i / 3],
                         strategies[s].keys);
                check_traffic(c, strategies[s].size, keys);
            }
    }
}

/* An evaluation between steps keeps nothing; a checkpoint has nothing of it, whatever its type. */
static void test_resume(struct comm *c, const char *folder)
{
    static const struct {
        enum ckpt_type type;
        const char *from, *to;
    } cases[] = {
        {CKPT_FULL, A_RANK FSDP("FULL_SHARD", KEEP("2")), "distributed_type = MULTI_CPU\n"},
        {CKPT_SHARDED, "distributed_type = MULTI_CPU\n", A_RANK FSDP("FULL_SHARD", KEEP("2"))},
        {CKPT_SHARDED, MESSAGES FSDP("FULL_SHARD", KEEP("2")), MESSAGES DEEPSPEED("3", HPZ("2"))},
        {CKPT_LOCAL, A_RANK FSDP("FULL_SHARD", ""), A_RANK FSDP("FULL_SHARD", KEEP("2"))},
        {CKPT_LOCAL, A_RANK FSDP("FULL_SHARD", KEEP("2")), FSDP("FULL_SHARD", "")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        TEST ("a resume with or without them goes on with the bits of the run that saved") {
            struct train_run a, b;
            struct eval_report x, y;
            char dir[300];
            struct arena *names = arena_create();
            snprintf(dir, sizeof dir, "%s/%zu", folder, i);
            set_up(&a, c, dir, cases[i].from, NULL);
            train_step(&a);
            engine_eval(a.engine, 2, &x);
            train_step(&a);
            train_must(train_save(&a, cases[i].type));
            set_up(&b, c, dir, cases[i].to, train_newest(c, dir, names));
            for (int k = 0; k < 2; k++) {
                struct step_report s = train_step(&a), r = train_step(&b);
                CHECK(s.loss == r.loss && s.grad_norm == r.grad_norm);
                engine_eval(a.engine, 2, &x);
                engine_eval(b.engine, 2, &y);
                CHECK(x.loss == y.loss);
            }
            CHECK(train_hash(&a, SHARD_MASTER) == train_hash(&b, SHARD_MASTER));
            CHECK(train_hash(&a, SHARD_STATE) == train_hash(&b, SHARD_STATE));
            train_close(&b);
            train_close(&a);
            arena_destroy(&names);
        }
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    char folder[200];
    train_folder(c, folder, sizeof folder);
    test_places(c);
    test_bits(c);
    test_traffic(c);
    test_resume(c, folder);
    return train_end(&c, folder);
}
