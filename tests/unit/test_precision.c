/* Precision and activation checkpointing from the keys of FSDP and DeepSpeed, and what contradicts
 * itself. */
#include "train_run.h"

#include "train/precision.h"

static const char head[] =
    "[job]\nmax_steps = 2\noutput_dir = none\n[model]\nn_layer = 5\nn_head = 1\nn_embd = 8\n"
    "block_size = 8\n[data]\npath = jobs/data/pride_and_prejudice.txt\n";

/* plan_ranks: as many as are planned for; 0: one runs. */
static int set_up_on(struct arena *a, const char *keys, int plan_ranks, struct run *r)
{
    struct job *j;
    struct comm *c = comm_self();
    const struct section_kind *const *kinds = run_kinds(a);
    const char *ini = arena_printf(a, "%s%s", head, keys);
    *r = (struct run){0};
    train_must(job_parse("t.ini", ini, strlen(ini), 0, NULL, kinds, a, &j));
    int rc = job_check(j, kinds);
    if (rc == ERR_OK)
        rc = run_setup(j, c, RUN_TRAIN, plan_ranks, NULL, a, r);
    comm_close(&c);
    return rc;
}

static int set_up(struct arena *a, const char *keys, struct run *r)
{
    return set_up_on(a, keys, 0, r);
}

#define ZERO "[strategy]\nplugin = z\n%s[plugin.z]\ntype = deepspeed\n%s"

static void test_precision(struct arena *a)
{
    struct run r;
    static const struct {
        const char *strategy, *plugin;
        enum dtype compute;
    } good[] = {
        {"", "", DTYPE_F32},
        {"", "fp16.enabled = true\n", DTYPE_F16},
        {"", "bf16.enabled = true\nfp16.enabled = false\n", DTYPE_BF16},
        {"mixed_precision = fp16\n", "fp16.enabled = auto\nbf16.enabled = auto\n", DTYPE_F16},
        {"mixed_precision = fp16\n", "fp16.enabled = true\n", DTYPE_F16},
        {"mixed_precision = bf16\n", "fp16.enabled = false\n", DTYPE_BF16},
    };
    TEST ("WORD.enabled is mixed_precision = WORD") {
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
            train_must(set_up(a, arena_printf(a, ZERO, good[i].strategy, good[i].plugin), &r));
            CHECK(r.shard.compute == good[i].compute);
            run_clear(&r);
        }
    }
    static const char *const bad[][3] = {
        {"mixed_precision = fp16\n", "bf16.enabled = true\n",
         "t.ini:16: [plugin.z] bf16.enabled = true: t.ini:13: [strategy] mixed_precision = fp16 "
         "says another thing: one of the two is enough"},
        {"mixed_precision = no\n", "fp16.enabled = true\n", "mixed_precision = no says another"},
        {"mixed_precision = fp16\n", "fp16.enabled = false\n",
         "t.ini:16: [plugin.z] fp16.enabled = false: does not go with t.ini:13: [strategy] "
         "mixed_precision = fp16"},
        {"", "fp16.enabled = true\nbf16.enabled = true\n",
         "t.ini:15: [plugin.z] fp16.enabled = true: t.ini:16: [plugin.z] bf16.enabled = true says"},
        {"", "fp16.enabled = maybe\n", "fp16.enabled = maybe"},
        {"", "fp16.hysteresis = 0\n", "fp16.hysteresis = 0"},
        {"fp16.hysteresis = 3\n", "fp16.hysteresis = 1\n", "fp16.hysteresis = 3 says another"},
        {"", "bf16.bf16_optimizer_states = true\n", "only false"},
        {"", "fp16.fp16_master_weights_and_grads = true\n", "only false"},
    };
    TEST ("what contradicts itself is one message with both places") {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            CHECK(set_up(a, arena_printf(a, ZERO, bad[i][0], bad[i][1]), &r) == ERR_USAGE);
            CHECK_HAS(err_text(), bad[i][2]);
            run_clear(&r);
        }
    }
    TEST ("DeepSpeed's block is the loss scale's own keys") {
        train_must(set_up(a,
                          arena_printf(a, ZERO, "",
                                       "fp16.enabled = true\nfp16.loss_scale = 8\n"
                                       "fp16.initial_scale_power = 5\nfp16.loss_scale_window = 6\n"
                                       "fp16.hysteresis = 7\nfp16.consecutive_hysteresis = true\n"
                                       "fp16.min_loss_scale = 0.5\n"),
                          &r));
        const struct loss_scale_conf *s = &r.conf.strategy.scale;
        CHECK(s->loss_scale == 8 && s->initial_scale_power == 5 && s->loss_scale_window == 6);
        CHECK(s->hysteresis == 7 && s->consecutive_hysteresis && s->min_loss_scale == 0.5);
        run_clear(&r);
    }
    TEST ("DeepSpeed's words for sums, and the table of dtypes") {
        static const char *const words[] = {"auto", "fp32", "fp16", "bf16", "bfp16"};
        static const enum dtype sums[] = {DTYPE_F32, DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_BF16};
        struct text t = {0};
        for (int i = 0; i < 5; i++) {
            const char *key = arena_printf(a, "communication_data_type = %s\n", words[i]);
            train_must(set_up(a, arena_printf(a, ZERO, "", key), &r));
            CHECK(r.shard.reduce == sums[i]);
            if (i == 3) {
                precision_to_json(&r.shard, precision_output(&r.conf.strategy), &t);
                CHECK_HAS(t.s, "\"reduce\":\"bfloat16\",\"accumulate\":\"float32\"");
            }
            run_clear(&r);
        }
        text_clear(&t);
        CHECK(set_up(a, arena_printf(a, ZERO, "", "data_types.grad_accum_dtype = bf16\n"), &r) ==
              ERR_USAGE);
        CHECK_HAS(err_text(), "only fp32");
        run_clear(&r);
        CHECK(set_up(a, arena_printf(a, ZERO, "no_sync = true\nsync_each_batch = true\n", ""),
                     &r) == ERR_USAGE);
        CHECK_HAS(err_text(), "no_sync = true: does not go with t.ini:14");
        run_clear(&r);
    }
}

static void test_notes(struct arena *a)
{
    struct run r;
    TEST ("a key that has no effect under this precision is named in a line") {
        struct text t = {0};
        train_must(set_up(a,
                          arena_printf(a, ZERO, "fp16.hysteresis = 3\nmixed_precision = bf16\n",
                                       "fp16.min_loss_scale = 2\n"),
                          &r));
        strategy_notes(&r.conf, &r.strategy, &t);
        CHECK_HAS(t.s, "[strategy] fp16.hysteresis has no effect: mixed_precision is not fp16\n");
        CHECK_HAS(t.s, "[plugin.z] fp16.min_loss_scale has no effect");
        text_clear(&t);
        run_clear(&r);
    }
    TEST ("reduce_dtype says where there is nothing to sum") {
        static const struct {
            const char *keys;
            int ranks;
            const char *words;
        } cases[] = {{"", 1, "reduce_dtype has no effect: one rank"},
                     {"local_sgd_steps = 2\n", 2, "reduce_dtype has no effect: LocalSGD"},
                     {"", 2, NULL}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct text t = {0};
            const char *ini = arena_printf(a, "[strategy]\nreduce_dtype = bf16\n%s", cases[i].keys);
            train_must(set_up_on(a, ini, cases[i].ranks, &r));
            strategy_notes(&r.conf, &r.strategy, &t);
            if (cases[i].words)
                CHECK_HAS(t.s ? t.s : "", cases[i].words);
            else
                CHECK(!t.s || !strstr(t.s, "reduce_dtype"));
            text_clear(&t);
            run_clear(&r);
        }
    }
}

#define MLP                                                                                        \
    "[job]\nmax_steps = 9\n[model]\ntype = mlp\nhidden = 8\n[data]\ntype = csv\n"                  \
    "path = build/outputs.csv\ntargets = y\ntask = %s\nbatch_size = 4\n[strategy]\n%s"

struct losses {
    double loss, norm, eval;
};

/* After a few steps. */
static struct losses learn(const char *ini)
{
    struct losses l;
    struct train_run t;
    struct eval_report e;
    struct comm *c = comm_self();
    train_open(&t, c, ini, NULL);
    for (int i = 0; i < 3; i++) {
        struct step_report s = train_step(&t);
        l.loss = s.loss;
        l.norm = s.grad_norm;
    }
    engine_eval(t.engine, 1, &e);
    l.eval = e.loss;
    train_close(&t);
    comm_close(&c);
    return l;
}

/* x: without the cast, y: with it. */
static void check_cast(struct losses x, struct losses y, double rel)
{
    CHECK(x.loss != y.loss && x.norm != y.norm && x.eval != y.eval);
    CHECK_NEAR(x.loss, y.loss, rel * x.loss);
    CHECK_NEAR(x.norm, y.norm, 20 * rel * x.norm);
    CHECK_NEAR(x.eval, y.eval, rel * x.eval);
}

static void test_output_table(struct arena *a)
{
    struct run r;
    static const struct {
        const char *keys, *words;
    } cases[] = {
        {"output_dtype = bf16\n", NULL},
        {"output_dtype = bf16\nmixed_precision = bf16\n",
         "output_dtype has no effect: layers compute in it"},
        {"output_dtype = fp16\n", "only mixed_precision = fp16 scales the loss"},
    };
    TEST ("output_dtype stands in the table of dtypes; a line says where it does nothing or harm") {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct text t = {0}, table = {0};
            train_must(set_up(a, arena_printf(a, "[strategy]\n%s", cases[i].keys), &r));
            strategy_notes(&r.conf, &r.strategy, &t);
            CHECK(cases[i].words ? t.s && strstr(t.s, cases[i].words)
                                 : !t.s || !strstr(t.s, "output_dtype"));
            precision_describe(&r.shard, precision_output(&r.conf.strategy), &table);
            CHECK_HAS(table.s, i < 2 ? "outputs that the loss sees bfloat16; loss float64"
                                     : "outputs that the loss sees float16; loss float64");
            text_clear(&t);
            text_clear(&table);
            run_clear(&r);
        }
        CHECK(set_up(a, "[strategy]\noutput_dtype = fp8\n", &r) == ERR_USAGE);
        CHECK_HAS(err_text(), "t.ini:12: [strategy] output_dtype = fp8");
        run_clear(&r);
    }
}

static void test_output(struct arena *a)
{
    static const char *const casts[] = {"output_dtype = bf16\n", "output_dtype = fp16\n"};
    static const char *const tasks[] = {"classification", "regression"};
    static const double rel[] = {0x1p-7, 0x1p-10};
    FILE *f = fopen("build/outputs.csv", "w");
    REQUIRE(f);
    fprintf(f, "x,z,y\n");
    for (int i = 0; i < 64; i++)
        fprintf(f, "%d.5,%d,%d\n", i % 7, i % 5, i % 3);
    REQUIRE(fclose(f) == 0);
    TEST ("outputs are rounded before the loss, in training and evaluation, under every head") {
        for (int d = 0; d < 2; d++) {
            const char *gpt = arena_printf(a, "%s[strategy]\n", head);
            check_cast(learn(gpt), learn(arena_printf(a, "%s%s", gpt, casts[d])), rel[d]);
            for (int t = 0; t < 2; t++)
                check_cast(learn(arena_printf(a, MLP, tasks[t], "")),
                           learn(arena_printf(a, MLP, tasks[t], casts[d])), rel[d]);
        }
    }
    TEST ("an output dtype that layers compute in changes no bit") {
        const char *gpt = arena_printf(a, "%s[strategy]\nmixed_precision = bf16\n", head);
        struct losses x = learn(gpt), y = learn(arena_printf(a, "%s%s", gpt, casts[0]));
        CHECK(x.loss == y.loss && x.norm == y.norm && x.eval == y.eval);
    }
    remove("build/outputs.csv");
}

static void test_recompute(struct arena *a)
{
    struct run r;
    static const struct {
        const char *keys;
        int n; /* of five blocks */
    } ways[] = {
        {"", 0},
        {"[strategy]\nactivation_checkpointing = true\n", 5},
        {"[strategy]\ngradient_checkpointing = true\n", 5},
        {"[strategy]\nactivation_checkpointing = true\nactivation_checkpointing_every = 2\n", 3},
        {"[strategy]\nactivation_checkpointing = true\nactivation_checkpointing_number = 2\n", 2},
        {"[strategy]\nactivation_checkpointing = true\nactivation_checkpointing_number = 9\n", 5},
        {"[strategy]\ndistributed_type = FSDP\n[plugin]\ntype = fsdp\n"
         "fsdp_activation_checkpointing = true\n",
         5},
        {"[strategy]\ndistributed_type = FSDP\n[plugin]\ntype = fsdp\n"
         "fsdp_activation_checkpointing = false\n",
         0},
        {"[strategy]\nplugin = z\n[plugin.z]\ntype = deepspeed\n"
         "activation_checkpointing.number_checkpoints = 3\n",
         3},
    };
    TEST ("which blocks are computed again") {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            train_must(set_up(a, ways[i].keys, &r));
            CHECK(r.n_recomputed == ways[i].n);
            run_clear(&r);
        }
    }
    TEST ("FSDP's key against the strategy's") {
        CHECK(set_up(a,
                     "[strategy]\ndistributed_type = FSDP\nactivation_checkpointing = false\n"
                     "[plugin]\ntype = fsdp\nfsdp_activation_checkpointing = true\n",
                     &r) == ERR_USAGE);
        CHECK_HAS(err_text(), "activation_checkpointing = false says another thing");
        run_clear(&r);
    }
}

int main(void)
{
    struct arena *a = arena_create();
    test_precision(a);
    test_notes(a);
    test_output_table(a);
    test_output(a);
    test_recompute(a);
    arena_destroy(&a);
    return check_done();
}
