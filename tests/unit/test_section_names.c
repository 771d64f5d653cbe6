/* Sections by accelerate's names: [fsdp_config], [deepspeed_config] are the plugin without a name.
 * RUN: -n 1 */
#include "check.h"
#include "train/setup.h"

#include <stdlib.h>

static struct comm *alone;

static const char head[] = "[job]\nmax_steps = 2\noutput_dir = none\n"
                           "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\n"
                           "block_size = 16\n[data]\npath = jobs/data/pride_and_prejudice.txt\n";

/* The run that ini, behind head, and an override ("": none) make of 4 ranks; the status. */
static int set_up(struct arena *a, const char *ini, const char *override, struct run *r)
{
    struct job *j, *packed;
    char *bytes;
    size_t n_bytes;
    const struct section_kind *const *kinds = run_kinds(a);
    const char *text = arena_printf(a, "%s%s", head, ini), *list[] = {override};
    *r = (struct run){0};
    TRY(job_parse("t.ini", text, strlen(text), *override ? 1 : 0, list, kinds, a, &j));
    job_pack(j, &bytes, &n_bytes); /* as it reaches the other ranks */
    packed = job_unpack(bytes, n_bytes, a);
    free(bytes);
    TRY(job_check(packed, kinds));
    return run_setup(packed, alone, RUN_TRAIN, 4, NULL, a, r);
}

static void test_taken(struct arena *a)
{
    static const struct {
        const char *ini, *override, *policy;
    } cases[] = {
        {"[fsdp_config]\nfsdp_sharding_strategy = SHARD_GRAD_OP\n"
         "[strategy]\ndistributed_type = FSDP\n",
         "", "SHARD_GRAD_OP"},
        {"[strategy]\ndistributed_type = DEEPSPEED\n[Deepspeed_Config]\nzero_stage = 3\n", "",
         "ZERO_3"},
        {"[strategy]\ndistributed_type = DEEPSPEED\n[deepspeed_config]\nzero_stage = 3\n",
         "deepspeed_config.zero_stage=1", "ZERO_1"},
        {"[strategy]\ndistributed_type = DEEPSPEED\n[deepspeed_config]\nzero_stage = 3\n",
         "plugin.zero_optimization.stage=1", "ZERO_1"},
        {"[strategy]\ndistributed_type = FSDP\n", "fsdp_config.fsdp_reshard_after_forward=false",
         "SHARD_GRAD_OP"},
    };
    TEST ("they act as the plugin without a name, and the command line knows both names") {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct run r;
            CHECK(set_up(a, cases[i].ini, cases[i].override, &r) == ERR_OK);
            if (r.strategy.policy)
                CHECK_STR(r.strategy.policy->name, cases[i].policy);
            run_clear(&r);
        }
    }
    TEST ("they rest where no strategy asks for them") {
        struct run r;
        struct text t = {0};
        CHECK(set_up(a, "[fsdp_config]\nfsdp_version = 2\n", "", &r) == ERR_OK);
        CHECK_STR(r.strategy.policy->name, "MULTI_CPU");
        strategy_notes(&r.conf, &r.strategy, &t);
        CHECK(t.s && strstr(t.s, "[plugin] rests"));
        text_clear(&t);
        run_clear(&r);
    }
    TEST ("the resolved job has them as the plugin, and says the same when it is read") {
        struct run r;
        struct text t = {0};
        CHECK(set_up(a, cases[0].ini, "", &r) == ERR_OK);
        job_print_resolved(r.conf.job, &t);
        CHECK(t.s && strstr(t.s, "[plugin]\ntype = fsdp\n") && !strstr(t.s, "fsdp_config"));
        run_clear(&r);
        struct job *j;
        CHECK(job_parse("t.ini", t.s, t.n_bytes, 0, NULL, run_kinds(a), a, &j) == ERR_OK);
        CHECK(run_setup(j, alone, RUN_TRAIN, 4, NULL, a, &r) == ERR_OK);
        CHECK_STR(r.strategy.policy->name, "SHARD_GRAD_OP");
        run_clear(&r);
        text_clear(&t);
    }
}

/* What version 2's key says, once and again from the resolved job. */
static void test_reshard(struct arena *a)
{
    static const struct {
        const char *says, *policy;
        int second_size;
    } cases[] = {
        {"true", "FULL_SHARD", 0},
        {"false", "SHARD_GRAD_OP", 0},
        {"HYBRID_SHARD\ndp_shard_size = 2", "HYBRID_SHARD", 0},
        {"1", "SHARD_GRAD_OP", 0},
        {"2", "FULL_SHARD", 2},
        {"2\nfsdp_sharding_strategy = FULL_SHARD", "FULL_SHARD", 2},
        {"2\nfsdp_sharding_strategy = HYBRID_SHARD\ndp_shard_size = 4", "HYBRID_SHARD", 2},
        {"false\nfsdp_sharding_strategy = HYBRID_SHARD\ndp_shard_size = 2", NULL, 0},
    };
    TEST ("fsdp_reshard_after_forward stands for fsdp_sharding_strategy, in the resolved job too") {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct run r;
            struct text t = {0};
            char *ini = arena_printf(a,
                                     "[strategy]\ndistributed_type = FSDP\nplugin = f\n"
                                     "[plugin.rests]\ntype = fsdp\n"
                                     "fsdp_reshard_after_forward = false\n[plugin.f]\n"
                                     "type = fsdp\nfsdp_reshard_after_forward = %s\n",
                                     cases[i].says);
            int rc = set_up(a, ini, "", &r);
            CHECK(rc == (cases[i].policy ? ERR_OK : ERR_USAGE));
            if (rc == ERR_OK)
                job_print_resolved(r.conf.job, &t);
            run_clear(&r);
            struct job *j;
            if (rc != ERR_OK)
                continue;
            CHECK(job_parse("t.ini", t.s, t.n_bytes, 0, NULL, run_kinds(a), a, &j) == ERR_OK);
            CHECK(run_setup(j, alone, RUN_TRAIN, 4, NULL, a, &r) == ERR_OK);
            CHECK_STR(r.strategy.policy->name, cases[i].policy);
            CHECK(r.strategy.second_size == cases[i].second_size);
            CHECK(r.shard.second_size == cases[i].second_size);
            run_clear(&r);
            text_clear(&t);
        }
    }
}

static void test_refused(struct arena *a)
{
    static const struct {
        const char *ini, *override, *words;
    } cases[] = {
        {"[fsdp_config]\nfsdp_version = 1\n[deepspeed_config]\nzero_stage = 2\n", "",
         "t.ini:14: [deepspeed_config]: is the [plugin] without a name, and so is [fsdp_config]"},
        {"[plugin]\ntype = fsdp\n[fsdp_config]\nfsdp_version = 1\n", "",
         "t.ini:14: [fsdp_config]: is the [plugin] without a name, and so is [plugin]"},
        {"[fsdp_config]\ntype = deepspeed\n", "",
         "t.ini:13: [fsdp_config] type = deepspeed: [fsdp_config] is of type fsdp"},
        {"[megatron_lm_config]\nmegatron_lm_tp_degree = 2\n", "",
         "t.ini:12: [megatron_lm_config]: there is no tensor or pipeline parallelism yet"},
        {"[fsdp_config]\nfsdp_shading_strategy = NO_SHARD\n", "",
         "t.ini:13: [fsdp_config] fsdp_shading_strategy = NO_SHARD: no such key; did you mean "
         "fsdp_sharding_strategy?"},
        {"[fsdp_config]\nzero_stage = 2\n", "",
         "t.ini:13: [fsdp_config] zero_stage = 2: zero_stage belongs to type = deepspeed"},
        {"[fsdp_config.a]\nfsdp_version = 1\n", "", "no such section"},
        {"[strategy]\ndistributed_type = DEEPSPEED\n[fsdp_config]\nfsdp_version = 1\n",
         "plugin.zero_optimization.stage=1", "belongs to type = deepspeed"},
        {"[deepspeed_config]\nzero_stage = 2\n", "fsdp_config.fsdp_version=1",
         "command line: [fsdp_config]: is the [plugin] without a name"},
    };
    TEST ("two plugins without a name, a type that is another, Megatron-LM, wrong keys: by place") {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct run r;
            CHECK(set_up(a, cases[i].ini, cases[i].override, &r) == ERR_USAGE);
            if (!strstr(err_text(), cases[i].words))
                CHECK_STR(err_text(), cases[i].words);
            run_clear(&r);
        }
    }
}

int main(void)
{
    struct arena *a = arena_create();
    alone = comm_self();
    test_taken(a);
    test_reshard(a);
    test_refused(a);
    comm_close(&alone);
    arena_destroy(&a);
    return check_done();
}
