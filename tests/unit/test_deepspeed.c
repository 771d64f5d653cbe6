/* DeepSpeed's keys: what they stand for, batch arithmetic, auto, what stays whole.
 * RUN: -n 1 */
#include "check.h"
#include "train/setup.h"

static struct comm *alone;

static const char head[] = "[job]\nmax_steps = 2\noutput_dir = none\n"
                           "[model]\ntype = gpt2\nn_layer = 3\nn_head = 2\nn_embd = 64\n"
                           "block_size = 16\n[data]\npath = jobs/data/pride_and_prejudice.txt\n";

/* The run that ini, behind head, makes of n_ranks ranks; the status. */
static int set_up(struct arena *a, const char *ini, int n_ranks, struct run *r)
{
    struct job *j;
    const struct section_kind *const *kinds = run_kinds(a);
    char *text = arena_printf(a, "%s%s", head, ini);
    *r = (struct run){0};
    TRY(job_parse("t.ini", text, strlen(text), 0, NULL, kinds, a, &j));
    TRY(job_check(j, kinds));
    return run_setup(j, alone, RUN_TRAIN, n_ranks, NULL, a, r);
}

/* Lines of [data] (the open section), of [strategy], of the plugin. */
static const char *job(struct arena *a, const char *data, const char *strategy, const char *plugin)
{
    return arena_printf(a,
                        "%s[strategy]\ndistributed_type = DEEPSPEED\n%s[plugin.z]\n"
                        "type = deepspeed\n%s",
                        data, strategy, plugin);
}

static void test_batch(struct arena *a)
{
    static const struct {
        const char *data, *strategy, *plugin;
        int ranks;
        int64_t micro_global, accumulation; /* 0: refused */
    } cases[] = {
        {"", "", "", 4, 32, 1},
        {"", "", "train_batch_size = auto\ntrain_micro_batch_size_per_gpu = auto\n", 4, 32, 1},
        {"", "", "train_batch_size = 24\n", 4, 24, 1},
        {"", "", "train_batch_size = 24\ntrain_micro_batch_size_per_gpu = 3\n", 4, 12, 2},
        {"", "", "train_batch_size = 24\ngradient_accumulation_steps = 3\n", 4, 8, 3},
        {"batch_size = 3\n", "", "train_batch_size = 24\n", 4, 12, 2},
        {"", "gradient_accumulation_steps = 2\n", "train_batch_size = 24\n", 4, 12, 2},
        {"batch_size = 3\n", "gradient_accumulation_steps = 2\n", "train_batch_size = 24\n", 4, 12,
         2},
        {"batch_size = 3\n", "", "train_micro_batch_size_per_gpu = 3\n", 2, 6, 1},
        {"batch_size = 12\nsplit_batches = true\n", "", "train_batch_size = 24\n", 4, 12, 2},
        {"batch_size = 3\n", "gradient_accumulation_steps = 3\n", "train_batch_size = 24\n", 4, 0,
         0},
        {"", "", "train_batch_size = 25\n", 4, 0, 0},
        {"", "", "train_batch_size = 24\ntrain_micro_batch_size_per_gpu = 5\n", 4, 0, 0},
        {"batch_size = 3\n", "", "train_micro_batch_size_per_gpu = 4\n", 4, 0, 0},
        {"", "gradient_accumulation_steps = 2\n", "gradient_accumulation_steps = 3\n", 4, 0, 0},
        {"batch_size = 12\nsplit_batches = true\n", "", "train_micro_batch_size_per_gpu = 3\n", 4,
         0, 0},
    };
    TEST ("batch = micro-batch x accumulation x ranks: two give the third, three must agree") {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct run r;
            int rc = set_up(a, job(a, cases[i].data, cases[i].strategy, cases[i].plugin),
                            cases[i].ranks, &r);
            CHECK(rc == (cases[i].accumulation ? ERR_OK : ERR_USAGE));
            if (rc == ERR_OK) {
                CHECK(r.batching.micro_global == cases[i].micro_global);
                CHECK(r.batching.accumulation == cases[i].accumulation);
            }
            run_clear(&r);
        }
    }
}

static void test_adopt(struct arena *a)
{
    struct run r;
    TEST ("one thing set twice to different values names both lines") {
        CHECK(set_up(a, job(a, "", "gradient_clipping = 0.5\n", "gradient_clipping = 1.0\n"), 2,
                     &r) == ERR_USAGE);
        CHECK_STR(err_text(), "t.ini:17: [plugin.z] gradient_clipping = 1.0: t.ini:14: [strategy] "
                              "gradient_clipping = 0.5 says another thing: one of the two is "
                              "enough");
        run_clear(&r);
        CHECK(set_up(a, job(a, "", "gradient_clipping = 1\n", "gradient_clipping = 1.0\n"), 2,
                     &r) == ERR_OK);
        run_clear(&r);
    }
    TEST ("auto takes what the other sections say, clipping then 1") {
        CHECK(set_up(a,
                     job(a, "", "",
                         "gradient_clipping = auto\noptimizer.type = adam\n"
                         "optimizer.params.lr = auto\n"
                         "optimizer.params.betas = [0.8, 0.9]\n[optimizer]\n"
                         "lr = 0.25\n"),
                     2, &r) == ERR_OK);
        CHECK(r.conf.strategy.gradient_clipping == 1 && r.conf.optim.lr == 0.25);
        CHECK_STR(r.conf.optim_ops->name, "Adam");
        run_clear(&r);
    }
    TEST ("a schedule in the plugin has DeepSpeed's warm-up; auto leaves it to [scheduler]") {
        CHECK(set_up(a, job(a, "", "", "scheduler.type = WarmupLR\nsteps_per_print = 7\n"), 2,
                     &r) == ERR_OK);
        CHECK(r.conf.schedule.warmup_num_steps == 1000 &&
              r.conf.schedule.warmup_type == WARMUP_LOG && r.conf.main.log_every == 7);
        run_clear(&r);
        CHECK(set_up(a,
                     job(a, "", "",
                         "scheduler.type = WarmupLR\n"
                         "scheduler.params.warmup_num_steps = auto\n[scheduler]\n"
                         "warmup_num_steps = 5\n"),
                     2, &r) == ERR_OK);
        CHECK(r.conf.schedule.warmup_num_steps == 5);
        run_clear(&r);
    }
    static const struct {
        const char *plugin, *words;
    } bad[] = {
        {"optimizer.type = SGD\noptimizer.params.betas = 0.9, 0.99\n", "SGD has no such key"},
        {"optimizer.type = Lamb\n", "[plugin.z] optimizer.type = Lamb"},
        {"optimizer.params.lr = fast\n", "optimizer.params.lr = fast"},
        {"optimizer.type = Adam\noptimizer.params.adam_w_mode = true\n", "AdamW"},
        {"optimizer.type = AdamW\n[optimizer]\ntype = SGD\n", "t.ini:18: [optimizer] type = SGD"},
        {"zero_optimization.stage = 0\nzero_optimization.offload_optimizer.device = cpu\n",
         "zero_optimization.stage = 0"},
        {"zero_optimization.offload_param.device = cpu\n", "zero_optimization.stage = 2 (default)"},
        {"zero_optimization.zero_quantized_weights = true\n", "only false"},
        {"zero_optimization.zero_hpz_partition_size = 2\n",
         "zero_optimization.stage = 2 (default)"},
        {"zero_optimization.stage = 3\nzero_optimization.zero_hpz_partition_size = 3\n",
         "must divide the 4 ranks"},
        {"zero_optimization.stage = 3\nzero_optimization.zero_hpz_partition_size = 8\n",
         "must divide the 4 ranks"},
        {"zero_optimization.stage = 3\nzero_optimization.zero_hpz_partition_size = -2\n",
         "an integer from 1"},
        {"zero_optimization.stage = 3\nzero_optimization.mics_shard_size = 2\n"
         "zero_optimization.zero_hpz_partition_size = 4\n",
         "must divide the 2 ranks"},
        {"deepspeed_config_file = zero.json\n", "JSON is not read"},
        {"aio.block_size = 5000\n", "a multiple of 4096"},
        {"aio.use_gds = true\n", "no GPU to read for"},
        {"dataloader_drop_last = true\n", "no sample is left out"},
        {"zero_optimization.stage = 3\nzero_optimization.mics_shard_size = 3\n", "groups of 3"},
    };
    TEST ("what does not fit is refused in words") {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            CHECK(set_up(a, job(a, "", "", bad[i].plugin), 4, &r) == ERR_USAGE);
            CHECK(strstr(err_text(), bad[i].words) != NULL);
            run_clear(&r);
        }
    }
    TEST ("a resting plugin is checked as well") {
        CHECK(set_up(a, "[plugin.a]\ntype = deepspeed\noptimizer.params.lr = fast\n", 1, &r) ==
              ERR_USAGE);
        run_clear(&r);
    }
}

static size_t elems(size_t n_bytes)
{
    return n_bytes / sizeof(float);
}

static void test_whole(struct arena *a)
{
    struct run r;
    struct shard_memory all, some, none;
    TEST ("auto sizes come from the width") {
        CHECK(set_up(a,
                     job(a, "", "",
                         "zero_optimization.stage = 3\n"
                         "zero_optimization.reduce_bucket_size = auto\n"
                         "zero_optimization.stage3_max_live_parameters = auto\n"
                         "zero_optimization.stage3_max_reuse_distance = auto\n"
                         "zero_optimization.stage3_prefetch_bucket_size = auto\n"
                         "zero_optimization.stage3_param_persistence_threshold = "
                         "auto\n"),
                     4, &r) == ERR_OK);
        CHECK(r.shard.reduce_bucket == 64 * 64 && r.strategy.wrap.persist_elems == 640);
        CHECK(r.strategy.wrap.reuse_elems == 1000000000);
        for (int u = 0; u < r.plan->n_units; u++)
            CHECK(r.plan->unit[u].keep != r.plan->unit[u].persists);
        run_clear(&r);
    }
    TEST ("what persists is held whole, in the compute dtype, and not gathered") {
        static const char key[] = "zero_optimization.stage = 3\n"
                                  "zero_optimization.stage3_param_persistence_threshold = ";
        CHECK(set_up(a, job(a, "", "", arena_printf(a, "%s0\n", key)), 4, &r) == ERR_OK);
        shard_measure(r.plan, r.model, &r.shard, 0, &none);
        CHECK(r.plan->n_units == 4 && none.copy == 0);
        run_clear(&r);
        CHECK(set_up(a, job(a, "", "", arena_printf(a, "%s300\n", key)), 4, &r) == ERR_OK);
        shard_measure(r.plan, r.model, &r.shard, 0, &some);
        const struct plan_unit *last = &r.plan->unit[r.plan->n_units - 1];
        CHECK(r.plan->n_units == 5 && last->persists && last->module == r.model->root);
        CHECK(elems(some.copy) == (size_t)last->n_elem);
        CHECK(some.gathered < none.gathered);
        for (int i = 0; i < last->n_rows; i++)
            CHECK(shape_elems(&r.model->table.rows[last->row[i]].shape) <= 300);
        run_clear(&r);
        CHECK(set_up(a, job(a, "", "", "zero_optimization.stage = 3\n"), 4, &r) == ERR_OK);
        shard_measure(r.plan, r.model, &r.shard, 0, &all);
        CHECK(elems(all.copy) == (size_t)r.plan->n_elem);
        run_clear(&r);
    }
    TEST ("a unit stays for its backward while the distance and the room allow it") {
        static const char keys[] = "zero_optimization.stage = 3\n"
                                   "zero_optimization.stage3_param_persistence_threshold = 0\n"
                                   "zero_optimization.stage3_max_reuse_distance = %d\n"
                                   "zero_optimization.stage3_max_live_parameters = %d\n";
        static const struct {
            int reuse, live, n_kept; /* of three blocks of 57,344 and a root of 19,456 */
        } cases[] = {{0, 1000000, 0},      {1, 1000000, 1},      {114688, 1000000, 1},
                     {114689, 1000000, 2}, {300000, 1000000, 3}, {300000, 140000, 2},
                     {300000, 60000, 0}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char *plugin = arena_printf(a, keys, cases[i].reuse, cases[i].live);
            CHECK(set_up(a, job(a, "", "", plugin), 4, &r) == ERR_OK);
            int n_kept = 0;
            for (int u = 1; u < r.plan->n_units; u++)
                n_kept += r.plan->unit[u].keep;
            CHECK(n_kept == cases[i].n_kept);
            run_clear(&r);
        }
    }
    TEST ("the reduce bucket bounds the scratch of sums") {
        CHECK(set_up(a, job(a, "", "", "zero_optimization.reduce_bucket_size = 8192\n"), 4, &r) ==
              ERR_OK);
        shard_measure(r.plan, r.model, &r.shard, 0, &all);
        CHECK(elems(all.scratch) == 8192);
        run_clear(&r);
    }
}

int main(void)
{
    struct arena *a = arena_create();
    alone = comm_self();
    test_batch(a);
    test_adopt(a);
    test_whole(a);
    comm_close(&alone);
    arena_destroy(&a);
    return check_done();
}
