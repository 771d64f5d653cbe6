/* Parameter groups: who matches whom, what a step is for each, and what freezing saves.
 * RUN: -n 1
 * RUN: -n 2 */
#include "train_run.h"

static const char job_text[] =
    "[job]\nmax_steps = 10\n"
    "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\nblock_size = 16\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 3\n"
    "[optimizer]\ntype = %s\nlr = 1e-2\nweight_decay = 0.1\n"
    "[strategy]\n%s"
    "[scheduler]\n%s";

struct text_of_job {
    const char *optimizer, *strategy, *rest;
};

static void open_job(struct train_run *t, struct comm *c, const struct text_of_job *j)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, j->optimizer, j->strategy, j->rest);
    train_open(t, c, ini, NULL);
}

/* The error that a job with this strategy and these groups is refused with. */
static void refused_job(struct comm *c, const char *strategy, const char *groups, const char *want)
{
    char ini[2048];
    snprintf(ini, sizeof ini, job_text, "AdamW", strategy, groups);
    train_refused(c, ini, want);
}

static void refused(struct comm *c, const char *groups, const char *want)
{
    refused_job(c, "", groups, want);
}

static void refused_strategy(struct comm *c, const char *strategy, const char *want)
{
    refused_job(c, strategy, "", want);
}

static void test_refusals(struct comm *c)
{
    TEST ("groups that cannot be meant are refused, with the place") {
        refused(c, "[group.a]\nlr = 1\n", "[group.a] match: shell patterns over tensor names");
        refused(c, "[group.a]\nmatch = h.0.attn.c_atn.weight\n",
                "test.ini:20: [group.a] match = h.0.attn.c_atn.weight: no tensor is called "
                "\"h.0.attn.c_atn.weight\"; the nearest is h.0.attn.c_attn.weight");
        refused(c, "[group.a]\nmatch = *.bias, h.9.*\n", "no tensor is called \"h.9.*\"");
        refused(c, "[group.a]\nmatch = *.bias\n[group.b]\nmatch = h.0.ln_1.bias\n",
                "[group.b] match = h.0.ln_1.bias: every tensor that matches is in an earlier "
                "group, as in [group.a]");
        refused(c, "[group.a]\nmatch = *\nfrozen = true\n", "nothing is left to train");
        refused(c, "[group.a]\nmatch = *.bias\nfrozen = true\nlr_scale = 2\n",
                "frozen tensors take no lr");
    }
}

static const struct optim_step *step_of(const struct train_run *t, const char *name)
{
    return &t->engine->row_step[tensor_find(&t->run.model->table, name)];
}

static void test_steps(struct comm *c)
{
    struct train_run t;
    const struct text_of_job j = {
        "AdamW", "",
        "type = WarmupLR\nwarmup_num_steps = 10\nwarmup_max_lr = 2e-2\n"
        "[group.norms]\nmatch = *.ln_*.weight, ln_f.*\nlr = 5e-2\n"
        "[group.biases]\nmatch = *.bias\nlr_scale = 3\nweight_decay = 0.25\n"
        "[group.head]\nmatch = lm_head.weight\nweight_decay = 0\n"};
    TEST ("each tensor's rate and decay are its group's, of the first group that matches") {
        open_job(&t, c, &j);
        struct step_report s = train_step(&t);
        CHECK_NEAR(s.lr, 2e-2 * 0.1, 1e-12);
        CHECK_NEAR(step_of(&t, "h.0.mlp.c_fc.weight")->lr, 2e-3, 1e-12);
        CHECK_NEAR(step_of(&t, "h.0.mlp.c_fc.weight")->weight_decay, 0.1, 0);
        CHECK_NEAR(step_of(&t, "h.1.ln_2.weight")->lr, 5e-3, 1e-12);
        CHECK_NEAR(step_of(&t, "h.1.ln_2.weight")->weight_decay, 0, 0); /* no matrix */
        CHECK_NEAR(step_of(&t, "ln_f.bias")->lr, 5e-3, 1e-12);          /* not in biases */
        CHECK_NEAR(step_of(&t, "ln_f.bias")->weight_decay, 0, 0);
        CHECK_NEAR(step_of(&t, "h.0.ln_1.bias")->lr, 6e-3, 1e-12);
        CHECK_NEAR(step_of(&t, "h.0.ln_1.bias")->weight_decay, 0.25, 0);
        CHECK_NEAR(step_of(&t, "wte.weight")->weight_decay, 0, 0); /* by its alias */
        CHECK_NEAR(step_of(&t, "wpe.weight")->weight_decay, 0.1, 0);
        train_close(&t);
    }
}

/* All of row, whole on every rank. */
static float *weights(const struct train_run *t, const char *name, int64_t *n)
{
    int row = tensor_find(&t->run.model->table, name);
    struct shard_part p = shard_held_part(t->engine->shard, SHARD_MASTER, row);
    *n = shape_elems(&t->run.model->table.rows[row].shape);
    CHECK(p.begin == 0 && p.end == *n);
    return p.values;
}

/* Largest difference of w - w0 from share of v - v0, as a part of the largest. */
static double off(const struct train_run *t, const struct train_run *u, const float *first,
                  const char *name, double share)
{
    int64_t n;
    const float *w = weights(t, name, &n), *v = weights(u, name, &n);
    double worst = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        double want = share * ((double)v[i] - (double)first[i]);
        worst = fmax(worst, fabs((double)w[i] - (double)first[i] - want));
        most = fmax(most, fabs((double)v[i] - (double)first[i]));
    }
    return most > 0 ? worst / most : 1;
}

static void test_updates(struct comm *c)
{
    struct train_run plain, grouped;
    const struct text_of_job j = {"SGD", "", ""};
    const struct text_of_job k = {"SGD", "",
                                  "[group.slow]\nmatch = h.0.*\nlr_scale = 0.25\n"
                                  "[group.still]\nmatch = h.1.mlp.*, wpe.*\nfrozen = true\n"};
    static const char *const names[] = {"h.0.mlp.c_fc.weight", "h.1.attn.c_attn.weight",
                                        "h.1.mlp.c_fc.weight", "wpe.weight"};
    static const double share[] = {0.25, 1, 0, 0};
    TEST ("one step of SGD: groups move by their rate, frozen tensors keep every bit") {
        float *first[4];
        open_job(&plain, c, &j);
        open_job(&grouped, c, &k);
        for (int i = 0; i < 4; i++) {
            int64_t n;
            const float *w = weights(&plain, names[i], &n);
            first[i] = malloc((size_t)n * sizeof *w);
            CHECK(first[i] != NULL);
            memcpy(first[i], w, (size_t)n * sizeof *w);
            CHECK(memcmp(w, weights(&grouped, names[i], &n), (size_t)n * sizeof *w) == 0);
        }
        struct step_report a = train_step(&plain), b = train_step(&grouped);
        CHECK(a.loss == b.loss);
        CHECK(a.grad_norm > b.grad_norm); /* of what is trained */
        for (int i = 0; i < 4; i++) {
            double worst = off(&grouped, &plain, first[i], names[i], share[i]);
            check_that(worst <= (share[i] > 0 ? 1e-4 : 0), __FILE__, __LINE__, "%s: off by %g",
                       names[i], worst);
            free(first[i]);
        }
        train_close(&grouped);
        train_close(&plain);
    }
}

static void test_saving(struct comm *c)
{
    static const char *const strategies[] = {
        "", "distributed_type = FSDP\n",
        "distributed_type = DEEPSPEED\n[plugin.d]\ntype = deepspeed\nzero_optimization.stage = 1\n",
        "distributed_type = DEEPSPEED\n[plugin.d]\ntype = deepspeed\nzero_optimization.stage = "
        "2\n"};
    TEST ("frozen tensors cost no gradient, no moments, no sums, and no arrays in a checkpoint")
        for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
            struct train_run t;
            const struct text_of_job j = {"AdamW", strategies[i],
                                          "[group.still]\nmatch = h.0.*, wte.*\nfrozen = true\n"};
            open_job(&t, c, &j);
            const struct plan *p = t.run.plan;
            struct shard_memory z;
            struct shard_traffic x;
            bool whole = !p->policy->shard_optim;
            int64_t n = whole ? p->n_train : plan_own_train(p, c->rank), n_arrays;
            shard_measure(p, t.run.model, &t.run.shard, c->rank, &z);
            shard_count_traffic(p, t.run.model, &t.run.shard, &(struct shard_world){1, 1, 1}, &x);
            CHECK(p->n_train < p->n_elem / 2 && p->n_train >= p->n_train_params);
            CHECK(z.state == (size_t)n * 8);
            CHECK(z.grad == (size_t)(p->policy->shard_grads ? n : p->n_train) * 4);
            CHECK_NEAR(x.summed, (double)p->n_train * 4 * (c->size - 1) / c->size, 1e-6);
            /* every owner's share is even, of both kinds */
            for (int u = 0; u < p->n_units; u++)
                CHECK(p->unit[u].cut[1] * c->size - p->unit[u].n_elem <= BLOCK_ELEMS * c->size);
            int count;
            struct run_place *place;
            const struct ckpt_array *arrays = run_arrays(&t.run, &count, &place);
            n_arrays = p->n_rows + 2 * p->n_trained;
            CHECK(count == n_arrays);
            for (int k = 0; k < count; k++) {
                CHECK_STR(arrays[k].name, t.run.model->table.rows[place[k].row].name);
                CHECK(place[k].array == SHARD_MASTER || strstr(arrays[k].group, "optim/exp_avg"));
            }
            train_close(&t);
        }
}

#define IGNORED(pattern)                                                                           \
    "distributed_type = FSDP\n[plugin.f]\ntype = fsdp\nfsdp_ignored_modules = " pattern "\n"

static bool is_whole(const struct plan *p, const struct tensor_table *t, const char *name)
{
    return p->unit[p->place[tensor_find(t, name)].unit].persists;
}

static void test_ignored(struct comm *c)
{
    TEST ("modules that FSDP ignores stay whole, and are gathered once a step") {
        struct train_run all, some;
        struct shard_traffic x, y;
        const struct text_of_job j = {"SGD", "distributed_type = FSDP\n", ""};
        const struct text_of_job k = {"SGD", IGNORED("h[.]0[.]mlp|wpe|.*[.]c_proj"), ""};
        open_job(&all, c, &j);
        open_job(&some, c, &k);
        const struct tensor_table *t = &some.run.model->table;
        const struct plan *p = some.run.plan;
        CHECK(is_whole(p, t, "h.0.mlp.c_fc.weight") && is_whole(p, t, "h.0.mlp.c_fc.bias"));
        CHECK(is_whole(p, t, "h.1.attn.c_proj.weight") && is_whole(p, t, "wpe.weight"));
        CHECK(!is_whole(p, t, "h.1.mlp.c_fc.weight") && !is_whole(p, t, "wte.weight"));
        CHECK(!is_whole(all.run.plan, t, "wpe.weight"));
        shard_count_traffic(all.run.plan, all.run.model, &all.run.shard,
                            &(struct shard_world){1, 1, 1}, &x);
        shard_count_traffic(p, some.run.model, &some.run.shard, &(struct shard_world){1, 1, 1}, &y);
        CHECK(y.summed == x.summed && (c->size == 1 || y.gathered < 0.9 * x.gathered));
        train_step(&some);
        CHECK(some.engine->shard->weight[tensor_find(t, "wpe.weight")] != NULL);
        CHECK(some.engine->shard->weight[tensor_find(t, "h.1.mlp.c_fc.weight")] == NULL);
        train_close(&some);
        train_close(&all);
    }
    TEST ("patterns of no module are refused") {
        refused_strategy(c, IGNORED("h[.]7"), "fsdp_ignored_modules = h[.]7: is the path of no");
        refused_strategy(c, IGNORED("h.0.ml"), "is the path of no module");
        refused_strategy(c, IGNORED("(h"), "is no extended regular expression");
    }
}

/* One row, one place, one gradient and one array for what the head and the embedding share. */
static void test_tied(struct comm *c)
{
    static const char *const strategies[] = {"", "distributed_type = FSDP\n"};
    TEST ("a tied matrix is stored and summed once, and keeps its other name")
        for (int i = 0; i < 2; i++) {
            struct train_run t;
            const struct text_of_job j = {"SGD", strategies[i], ""};
            open_job(&t, c, &j);
            const struct tensor_table *table = &t.run.model->table;
            int row = tensor_find(table, "wte.weight"), n, n_times = 0;
            CHECK(row >= 0 && tensor_find(table, "lm_head.weight") == row);
            CHECK_STR(table->rows[row].alias, "lm_head.weight");
            const struct ckpt_array *arrays = run_arrays(&t.run, &n, NULL);
            for (int k = 0; k < n; k++)
                n_times += arrays[k].alias && strcmp(arrays[k].alias, "lm_head.weight") == 0;
            CHECK(n_times == 1 && n == table->n_rows);
            struct shard_traffic x;
            shard_count_traffic(t.run.plan, t.run.model, &t.run.shard,
                                &(struct shard_world){1, 1, 1}, &x);
            CHECK_NEAR(x.summed, (double)t.run.plan->n_elem * 4 * (c->size - 1) / c->size, 1e-6);
            CHECK(t.run.plan->n_params == tensor_table_elems(table));
            train_close(&t);
        }
}

int main(void)
{
    struct comm *c;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    test_refusals(c);
    test_steps(c);
    test_updates(c);
    test_saving(c);
    test_tied(c);
    test_ignored(c);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
