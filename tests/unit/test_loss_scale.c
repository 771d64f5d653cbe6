/* The loss scale: the recurrence against a plain copy of its definition, overflows that come by
 * themselves and ones that are injected, across a resume, and what a skipped step leaves alone.
 * RUN: -n 1
 * RUN: -n 2 */
#include "train_run.h"

/* DeepSpeed 0.19's DynamicLossScaler.update_scale, line by line. */
struct reference {
    double cur_scale;
    int64_t cur_iter, last_overflow_iter, cur_hysteresis;
};

/* false: it raises at the smallest scale. */
static bool reference_update(struct reference *r, const struct loss_scale_conf *c, bool overflow)
{
    if (overflow) {
        if (c->hysteresis == 1 || r->cur_hysteresis == 1) {
            if (r->cur_scale == c->min_loss_scale)
                return false;
            double half = r->cur_scale / 2;
            r->cur_scale = half > c->min_loss_scale ? half : c->min_loss_scale;
        } else {
            r->cur_hysteresis -= 1;
        }
        r->last_overflow_iter = r->cur_iter;
    } else {
        if (c->consecutive_hysteresis)
            r->cur_hysteresis = c->hysteresis;
        int64_t stable_interval = (r->cur_iter - r->last_overflow_iter) - 1;
        if (stable_interval > 0 && stable_interval % c->loss_scale_window == 0) {
            if (!c->consecutive_hysteresis)
                r->cur_hysteresis = c->hysteresis;
            r->cur_scale *= 2;
        }
    }
    r->cur_iter += 1;
    return true;
}

static struct reference reference_first(const struct loss_scale_conf *c)
{
    return (struct reference){ldexp(1, (int)c->initial_scale_power), 0, -1, c->hysteresis};
}

/* Every short pattern of overflows, and long random ones, under many settings. */
static void against_reference(void)
{
    static const int64_t windows[] = {1, 2, 3, 7}, delays[] = {1, 2, 3};
    uint32_t noise = 1;
    for (int k = 0; k < 4 * 3 * 2 * 40; k++) {
        struct loss_scale_conf c = {.initial_scale_power = 4,
                                    .loss_scale_window = windows[k % 4],
                                    .hysteresis = delays[k / 4 % 3],
                                    .consecutive_hysteresis = k / 12 % 2,
                                    .min_loss_scale = k % 5 ? 1 : 0.25};
        struct loss_scale s = loss_scale_first(&c);
        struct reference r = reference_first(&c);
        CHECK(s.scale == 16);
        for (int i = 0; i < 200; i++) {
            noise = noise * 1664525u + 1013904223u;
            bool overflow = i < 10 ? k / 24 >> i % 5 & 1 : noise >> 24 < 40;
            bool goes_on = reference_update(&r, &c, overflow);
            struct loss_scale before = s;
            int rc = loss_scale_update(&s, &c, overflow);
            CHECK((rc == ERR_OK) == goes_on && (goes_on || rc == ERR_DIVERGED));
            if (!goes_on) {
                CHECK(s.scale == before.scale && s.iter == before.iter);
                break;
            }
            CHECK(s.scale == r.cur_scale && s.iter == r.cur_iter);
            CHECK(s.last_overflow == r.last_overflow_iter && s.hysteresis == r.cur_hysteresis);
        }
    }
    struct loss_scale_conf fixed = {.loss_scale = 1000, .hysteresis = 2, .min_loss_scale = 1};
    struct loss_scale s = loss_scale_first(&fixed);
    for (int i = 0; i < 9; i++)
        CHECK(loss_scale_update(&s, &fixed, i % 2 == 0) == ERR_OK && s.scale == 1000);
}

static const char job[] =
    "[job]\nmax_steps = 40\noutput_dir = %s\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\ndropout = 0.1\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 2\n"
    "[strategy]\ngradient_accumulation_steps = 2\nsync_each_batch = true\n"
    "gradient_clipping = 0.5\nmixed_precision = fp16\nfp16.loss_scale_window = 3\n%s"
    "[optimizer]\ntype = AdamW\nlr = 1e-2\nweight_decay = 0.1\n"
    "[scheduler]\ntype = cosine\nwarmup_num_steps = 5\n";

static uint64_t fingerprint(const struct train_run *t)
{
    const struct shard *s = t->engine->shard;
    uint64_t h = 0;
    for (int r = 0; r < s->plan->n_rows; r++)
        for (int i = -1; i < s->conf.n_states; i++) {
            struct shard_part p = shard_held_part(s, i < 0 ? SHARD_MASTER : SHARD_STATE + i, r);
            h = hash64(p.values, (size_t)(p.end - p.begin) * sizeof(float), h);
        }
    return h;
}

/* The status of a step whose summed gradient gets a value on the rank that owns it. */
static int step_poisoned(struct train_run *t, float value, struct step_report *s)
{
    struct window w;
    train_window(t, &w);
    struct shard_part p = shard_own_part(t->engine->shard, SHARD_GRAD, 2);
    if (p.begin == 0 && p.end > 0)
        p.values[0] = value;
    return engine_step(t->engine, &w, s);
}

static struct step_report step_with(struct train_run *t, bool overflow)
{
    struct step_report s;
    if (!overflow)
        return train_step(t);
    train_must(step_poisoned(t, INFINITY, &s));
    return s;
}

static void open_run(struct train_run *t, struct comm *c, const char *folder, const char *keys,
                     struct ckpt *from)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job, folder, keys);
    train_open(t, c, ini, from);
}

enum { N_STEPS = 24 };

static bool injected(int i)
{
    return i == 3 || i == 4 || i == 9 || i == 12 || i == 13 || i == 14 || i == 20;
}

struct course {
    double loss[N_STEPS], scale[N_STEPS], lr[N_STEPS];
    uint64_t end;
};

/* All steps, the second half from a checkpoint if resume. */
static void take_course(struct comm *c, const char *folder, const char *keys, bool resume,
                        struct course *out)
{
    struct train_run t;
    open_run(&t, c, folder, keys, NULL);
    struct reference r = reference_first(&t.run.conf.strategy.scale);
    for (int i = 0; i < N_STEPS; i++) {
        if (resume && i == 14) { /* in the middle of overflows that follow each other */
            const char *dir = NULL;
            struct ckpt *k;
            struct arena *a = arena_create();
            train_must(train_save(&t, CKPT_FULL));
            c->ops->barrier(c);
            train_close(&t);
            train_must(ckpt_find(folder, a, &dir));
            train_must(ckpt_open(dir, &k));
            open_run(&t, c, folder, keys, k);
            arena_destroy(&a);
        }
        uint64_t before = fingerprint(&t);
        struct step_report s = step_with(&t, injected(i));
        CHECK(s.loss_scale == r.cur_scale);
        CHECK(s.skipped == injected(i));
        CHECK((fingerprint(&t) == before) == injected(i));
        CHECK(reference_update(&r, &t.run.conf.strategy.scale, injected(i)));
        CHECK(t.engine->scale.scale == r.cur_scale);
        out->loss[i] = s.loss;
        out->scale[i] = s.loss_scale;
        out->lr[i] = s.lr;
    }
    CHECK(t.engine->step == N_STEPS && t.engine->skipped == 7);
    out->end = fingerprint(&t);
    train_close(&t);
}

static void courses(struct comm *c, const char *folder, const char *keys)
{
    struct course whole, parts;
    char saves[300];
    snprintf(saves, sizeof saves, "%s/%s", folder, *keys ? "other" : "plain");
    take_course(c, saves, keys, false, &whole);
    take_course(c, saves, keys, true, &parts);
    for (int i = 0; i < N_STEPS; i++) {
        CHECK(whole.loss[i] == parts.loss[i] && whole.scale[i] == parts.scale[i]);
        CHECK(whole.lr[i] == parts.lr[i]);
        if (i > 0 && injected(i - 1)) /* the schedule did not move */
            CHECK(whole.lr[i] == whole.lr[i - 1]);
    }
    CHECK(whole.end == parts.end);
}

/* From a scale that no half holds: the first steps overflow by themselves. */
static void natural(struct comm *c, const char *folder)
{
    struct train_run t;
    open_run(&t, c, folder, "fp16.initial_scale_power = 40\nfp16.hysteresis = 1\n", NULL);
    struct reference r = reference_first(&t.run.conf.strategy.scale);
    double first = 0, last = 0;
    bool early = true;
    for (int i = 0; i < 40; i++) {
        struct step_report s = train_step(&t);
        CHECK(s.loss_scale == r.cur_scale && isfinite(s.loss));
        CHECK(reference_update(&r, &t.run.conf.strategy.scale, s.skipped));
        CHECK(!early || i > 0 || s.skipped);
        if (!s.skipped && early) {
            first = s.loss;
            early = false;
        }
        if (!s.skipped)
            last = s.loss;
    }
    CHECK(t.engine->skipped >= 5 && t.engine->skipped < 35);
    CHECK(last < first); /* it learns all the same */
    train_close(&t);
}

/* At the smallest scale an overflow is the end, and the weights are those before it. */
static void smallest(struct comm *c, const char *folder)
{
    struct train_run t;
    struct step_report s;
    open_run(&t, c, folder,
             "fp16.initial_scale_power = 2\nfp16.hysteresis = 1\nfp16.min_loss_scale = 2\n", NULL);
    CHECK(step_with(&t, true).skipped && t.engine->scale.scale == 2);
    CHECK(!step_with(&t, false).skipped);
    uint64_t before = fingerprint(&t);
    CHECK(step_poisoned(&t, NAN, &s) == ERR_DIVERGED);
    CHECK_HAS(err_text(), "step 3");
    CHECK_HAS(err_text(), "smallest loss scale, 2");
    CHECK(fingerprint(&t) == before && t.engine->step == 2);
    train_close(&t);
}

static void open_fp32(struct train_run *t, struct comm *c, const char *folder)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job, folder, "");
    char *word = strstr(ini, "fp16\n");
    memcpy(word, "no  \n", 5);
    train_open(t, c, ini, NULL);
}

/* A run in fp32 that keeps the scale of one in fp16 blames no scale. */
static void kept_scale(struct comm *c, const char *folder)
{
    struct train_run t;
    struct step_report s;
    open_fp32(&t, c, folder);
    engine_take_scale(t.engine, &(struct loss_scale){.scale = 4, .last_overflow = -1});
    CHECK(step_poisoned(&t, NAN, &s) == ERR_DIVERGED);
    CHECK_HAS(err_text(), "the gradient is not finite although every layer's output is");
    train_close(&t);
}

/* A power of two changes no bit of what does not underflow: here of the norm and the rate only
 * nearly, so losses of a few steps are compared with fp32's. */
static void near_fp32(struct comm *c, const char *folder)
{
    struct train_run half, whole;
    open_run(&half, c, folder, "", NULL);
    open_fp32(&whole, c, folder);
    for (int i = 0; i < 10; i++) {
        struct step_report a = train_step(&half), b = train_step(&whole);
        CHECK(a.loss != b.loss);
        CHECK_NEAR(a.loss, b.loss, 2e-3 * b.loss);
        CHECK_NEAR(a.grad_norm, b.grad_norm, 2e-2 * b.grad_norm);
        CHECK(!a.skipped && b.loss_scale == 1);
    }
    train_close(&half);
    train_close(&whole);
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    char folder[200];
    train_folder(c, folder, sizeof folder);
    TEST ("the recurrence, step by step, and a fixed scale")
        against_reference();
    TEST ("injected overflows follow it; a skipped step changes nothing; so does a resume")
        courses(c, folder, "");
    TEST ("the same in FULL_SHARD with consecutive hysteresis")
        courses(c, folder,
                "fp16.consecutive_hysteresis = true\nfp16.hysteresis = 3\ndistributed_type = "
                "FSDP\n");
    TEST ("a scale that is far too large comes down by itself")
        natural(c, folder);
    TEST ("at the smallest scale an overflow ends the run")
        smallest(c, folder);
    TEST ("a scale that is only kept is not to blame")
        kept_scale(c, folder);
    TEST ("losses and norms of fp16 are near those of fp32")
        near_fp32(c, folder);
    return train_end(&c, folder);
}
