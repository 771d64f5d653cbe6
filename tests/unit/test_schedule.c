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

int main(void)
{
    test_ours();
    test_deepspeed();
    return check_done();
}
