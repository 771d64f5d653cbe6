/* Learning rates by their formulas: ours, DeepSpeed's first twelve steps, a published cosine.
 * RUN: -n 1 */
#include "check.h"
#include "optim/schedule.h"

static struct schedule_conf conf(const char *type, int64_t warmup)
{
    struct arena *a = arena_create();
    struct schedule_conf c;
    for (const struct opt *o = schedule_opts; o->type != OPT_END; o++)
        if (o->dflt)
            CHECK(opt_parse(o, o->dflt, &c, a) == ERR_OK);
    CHECK(opt_parse(opt_find(schedule_opts, "type"), type, &c, a) == ERR_OK);
    c.warmup_num_steps = warmup;
    arena_destroy(&a);
    return c;
}

static void test_ours(void)
{
    TEST ("constant is constant, from the first step") {
        struct schedule_conf c = conf("constant", 0);
        for (int k = 1; k < 20; k++)
            CHECK(schedule_lr(&c, 0.3, k, 10) == 0.3);
    }
    TEST ("warm-up rises evenly and reaches the peak at its last step") {
        struct schedule_conf c = conf("WarmupLR", 4);
        const double want[] = {0.25, 0.5, 0.75, 1, 1, 1};
        for (int k = 1; k <= 6; k++)
            CHECK_NEAR(schedule_lr(&c, 1, k, 100), want[k - 1], 1e-15);
    }
    TEST ("linear ends at end_lr at the last step") {
        struct schedule_conf c = conf("linear", 2);
        c.end_lr = 0.1;
        const double want[] = {0.5, 1, 0.775, 0.55, 0.325, 0.1, 0.1};
        for (int k = 1; k <= 7; k++)
            CHECK_NEAR(schedule_lr(&c, 1, k, 6), want[k - 1], 1e-15);
    }
    TEST ("cosine with warm-up: cs336's published table (max 1, min 0.1, 7 up, down to 21)") {
        struct schedule_conf c = conf("cosine", 7);
        c.cos_min_ratio = 0.1;
        c.total_num_steps = 21;
        const double want[] = {.142857,   .285714,   .428571,   .571429,   .714286,
                               .857143,   1.0,       .98871755, .95543599, .90182417,
                               .83057041, .74524768, .65013443, .55,       .44986558,
                               .35475232, .26942959, .19817583, .14456400, .11128244};
        for (int k = 1; k <= 20; k++)
            CHECK_NEAR(schedule_lr(&c, 1, k, 5), want[k - 1], 1e-6);
        CHECK_NEAR(schedule_lr(&c, 1, 21, 5), 0.1, 1e-12);
        CHECK_NEAR(schedule_lr(&c, 1, 1000, 5), 0.1, 1e-12);
    }
    TEST ("the peak is the optimizer's lr unless warmup_max_lr says otherwise") {
        struct schedule_conf c = conf("WarmupLR", 0);
        CHECK(schedule_lr(&c, 0.7, 5, 10) == 0.7);
        c.warmup_max_lr = 0.2;
        CHECK(schedule_lr(&c, 0.7, 5, 10) == 0.2);
    }
}

/* i = k - 2 and the formulas of features.md 3.6, spelled out for these numbers. */
static void test_deepspeed(void)
{
    TEST ("compat = deepspeed: WarmupLR's first two steps use the minimum; linear by i / N") {
        struct schedule_conf c = conf("WarmupLR", 10);
        c.compat = SCHEDULE_DEEPSPEED;
        c.warmup_min_lr = 0.01;
        const double want[] = {0.01, 0.01, 0.11, 0.21, 0.31, 0.41,
                               0.51, 0.61, 0.71, 0.81, 0.91, 1.01};
        for (int k = 1; k <= 12; k++)
            CHECK_NEAR(schedule_lr(&c, 1.01, k, 100), want[k - 1], 1e-12);
    }
    TEST ("compat = deepspeed: log warm-up is ln(i + 1) / ln N") {
        struct schedule_conf c = conf("WarmupLR", 10);
        c.compat = SCHEDULE_DEEPSPEED;
        c.warmup_type = WARMUP_LOG;
        for (int k = 2; k <= 11; k++)
            CHECK_NEAR(schedule_lr(&c, 2, k, 100), 2 * log(k - 1) / log(10), 1e-12);
    }
    TEST ("compat = deepspeed: WarmupDecayLR falls to the minimum at i = T") {
        struct schedule_conf c = conf("WarmupDecayLR", 2);
        c.compat = SCHEDULE_DEEPSPEED;
        c.total_num_steps = 10;
        CHECK_NEAR(schedule_lr(&c, 1, 4, 0), 1, 1e-12);
        CHECK_NEAR(schedule_lr(&c, 1, 8, 0), 0.5, 1e-12);
        CHECK_NEAR(schedule_lr(&c, 1, 12, 0), 0, 1e-12);
        CHECK_NEAR(schedule_lr(&c, 1, 50, 0), 0, 1e-12);
    }
    TEST ("compat = deepspeed: cosine begins with 0 at i < 0") {
        struct schedule_conf c = conf("WarmupCosineLR", 4);
        c.compat = SCHEDULE_DEEPSPEED;
        c.total_num_steps = 12;
        CHECK(schedule_lr(&c, 1, 1, 0) == 0);
        CHECK_NEAR(schedule_lr(&c, 1, 3, 0), 0.25, 1e-12);
        double p = (6 - 4 + 1) / 8.0;
        double want = 1e-4 + (1 - 1e-4) * (1 + cos(3.14159265358979 * p)) / 2;
        CHECK_NEAR(schedule_lr(&c, 1, 8, 0), want, 1e-12);
    }
}

/* One key of a conf, by its name. */
static void set(struct schedule_conf *c, const char *key, const char *value)
{
    struct arena *a = arena_create();
    CHECK(opt_parse(opt_find(schedule_opts, key), value, c, a) == ERR_OK);
    arena_destroy(&a);
}

static struct schedule_conf one_cycle(void)
{
    struct schedule_conf c = conf("OneCycle", 0);
    set(&c, "cycle_min_lr", "0.1");
    set(&c, "cycle_max_lr", "1.1");
    set(&c, "cycle_first_step_size", "4");
    set(&c, "cycle_second_step_size", "2");
    return c;
}

/* DeepSpeed 0.19's formulas with its fractions of a cycle, for batch i = k - 1. */
static double deepspeed_height(double i, double first, double second)
{
    double total = first + second, ratio = first / total;
    double x = 1 + i / total - floor(1 + i / total);
    return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
}

static void test_one_cycle(void)
{
    TEST ("OneCycle: a triangle, then min / (1 + rate steps / decay_step_size)") {
        struct schedule_conf c = one_cycle();
        const double want[] = {.1, .35, .6, .85, 1.1, .6, .1, .1, .1};
        for (int k = 1; k <= 9; k++)
            CHECK_NEAR(schedule_lr(&c, 7, k, 100), want[k - 1], 1e-12);
        for (int k = 1; k <= 7; k++)
            CHECK_NEAR(schedule_lr(&c, 7, k, 100), .1 + deepspeed_height(k - 1, 4, 2), 1e-12);
        set(&c, "decay_lr_rate", "0.5");
        CHECK_NEAR(schedule_lr(&c, 7, 9, 100), .1, 1e-12); /* without a step size there is none */
        set(&c, "decay_step_size", "10");
        CHECK_NEAR(schedule_lr(&c, 7, 7, 100), .1, 1e-12);
        CHECK_NEAR(schedule_lr(&c, 7, 8, 100), .1 / 1.05, 1e-12);
        CHECK_NEAR(schedule_lr(&c, 7, 27, 100), .1 / 2, 1e-12);
    }
    TEST ("OneCycle: stairs, equal halves and the optimizer's lr where nothing else is said") {
        struct schedule_conf c = one_cycle();
        set(&c, "cycle_first_stair_count", "2");
        const double stairs[] = {.1, .1, .6, .6, 1.1, .6, .1};
        for (int k = 1; k <= 7; k++)
            CHECK_NEAR(schedule_lr(&c, 7, k, 100), stairs[k - 1], 1e-12);
        c = conf("OneCycle", 0);
        set(&c, "cycle_first_step_size", "3");
        const double want[] = {.5, 2, 3.5, 5, 3.5, 2, .5, .5};
        for (int k = 1; k <= 8; k++)
            CHECK_NEAR(schedule_lr(&c, 5, k, 100), want[k - 1], 1e-12);
        /* 3 of 3 stairs in 7 steps: the peak is not lost to rounding */
        set(&c, "cycle_first_stair_count", "3");
        set(&c, "cycle_first_step_size", "7");
        CHECK_NEAR(schedule_lr(&c, 5, 8, 100), 5, 1e-12);
    }
    TEST ("OneCycle: the first beta mirrors the rate; DeepSpeed's begins at the wrong end") {
        struct schedule_conf c = one_cycle();
        const double want[] = {.9, .875, .85, .825, .8, .85, .9, .9};
        double b[2];
        for (int k = 1; k <= 8; k++) {
            CHECK(schedule_betas(&c, k, 0.95, b) && b[1] == 0.95);
            CHECK_NEAR(b[0], want[k - 1], 1e-12);
        }
        set(&c, "decay_mom_rate", "0.1");
        set(&c, "decay_step_size", "2");
        CHECK(schedule_betas(&c, 9, 0.95, b));
        CHECK_NEAR(b[0], .99, 1e-12);
        CHECK(schedule_betas(&c, 900, 0.95, b) && b[0] < 1);
        c.compat = SCHEDULE_DEEPSPEED;
        CHECK(schedule_betas(&c, 1, 0.95, b) && b[0] == .8 && b[1] == .99);
        CHECK(schedule_betas(&c, 2, 0.95, b) && fabs(b[0] - .875) < 1e-12);
        set(&c, "cycle_momentum", "false");
        CHECK(!schedule_betas(&c, 1, 0.95, b));
        c = conf("WarmupLR", 0);
        CHECK(!schedule_betas(&c, 1, 0.95, b));
    }
}

static void test_range(void)
{
    TEST ("LRRangeTest grows evenly or in stairs") {
        struct schedule_conf c = conf("LRRangeTest", 0);
        set(&c, "lr_range_test_step_size", "4");
        set(&c, "lr_range_test_step_rate", "2");
        const double slope[] = {.5, .75, 1, 1.25, 1.5, 1.75}, stairs[] = {.5, .5, .5, .5, 1.5, 1.5};
        for (int k = 1; k <= 6; k++)
            CHECK_NEAR(schedule_lr(&c, .5, k, 100), slope[k - 1], 1e-12);
        set(&c, "lr_range_test_staircase", "true");
        for (int k = 1; k <= 6; k++)
            CHECK_NEAR(schedule_lr(&c, .5, k, 100), stairs[k - 1], 1e-12);
        set(&c, "lr_range_test_min_lr", "2");
        CHECK(schedule_lr(&c, .5, 1, 100) == 2);
    }
}

static bool rests(const char *type, const char *key)
{
    struct schedule_conf c = conf(type, 0);
    return schedule_rests(&c, key) != NULL;
}

static void test_keys(void)
{
    TEST ("each key is of some type, and rests under the others") {
        static const char *const types[] = {"constant", "linear", "cosine", "OneCycle",
                                            "LRRangeTest"};
        for (const struct opt *o = schedule_opts; o->type != OPT_END; o++) {
            int n_act = 0;
            for (int i = 0; i < 5; i++)
                n_act += !rests(types[i], o->name);
            bool decays = strcmp(o->name, "decay_lr_rate") == 0 ||
                          strcmp(o->name, "decay_mom_rate") == 0; /* step size 0: they rest */
            CHECK(decays ? n_act == 0 : n_act > 0);
        }
        CHECK(rests("constant", "cycle_min_lr") && rests("OneCycle", "warmup_num_steps"));
        CHECK(rests("linear", "cos_min_ratio") && !rests("linear", "end_lr"));
        CHECK(rests("OneCycle", "lr_range_test_step_size") && rests("LRRangeTest", "compat"));
    }
    TEST ("what contradicts another key is named") {
        const char *key;
        struct schedule_conf c = one_cycle();
        CHECK(!schedule_check(&c, 1, &key));
        c.cycle_max_lr = OPT_AUTO_F64;
        CHECK(schedule_check(&c, 0.05, &key) && strcmp(key, "cycle_min_lr") == 0);
        c = one_cycle();
        set(&c, "cycle_min_mom", "0.95");
        CHECK(schedule_check(&c, 1, &key) && strcmp(key, "cycle_min_mom") == 0);
        c = conf("linear", 9);
        c.total_num_steps = 5;
        CHECK(schedule_check(&c, 1, &key) && strcmp(key, "total_num_steps") == 0);
    }
}

int main(void)
{
    test_one_cycle();
    test_range();
    test_keys();
    test_ours();
    test_deepspeed();
    return check_done();
}
