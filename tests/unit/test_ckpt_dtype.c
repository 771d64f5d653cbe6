/* Checkpoints whose weights were converted to another dtype: evaluated, gone on from, begun with;
 * and what cannot be: training without moments, values that a float32 has not.
 * RUN: -n 1
 * RUN: -n 2 */
#include "train_run.h"

#include "base/file.h"
#include "tensor/convert.h"
#include "train/convert.h"

enum { N_FIRST = 3, N_REST = 2, N_DTYPES = 3 };
static const struct {
    enum dtype dtype;
    int word; /* of convert's --dtype */
    double rel;
} dtypes[N_DTYPES] = {{DTYPE_BF16, 2, 0.004}, {DTYPE_F16, 3, 0.0005}, {DTYPE_F64, 4, 0}};

static void print_job(char *ini, size_t cap, const char *saves, const char *more)
{
    snprintf(ini, cap,
             "[job]\nmax_steps = 100\noutput_dir = %s\n"
             "[model]\ntype = gpt2\nn_layer = 1\nn_head = 2\nn_embd = 32\nblock_size = 16\n"
             "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 2\n"
             "[eval]\nbatches = 2\n[optimizer]\ntype = AdamW\nlr = 1e-2\n%s",
             saves, more);
}

#define FSDP                                                                                       \
    "[strategy]\ndistributed_type = FSDP\nmixed_precision = %s\n[plugin.f]\ntype = fsdp\n"         \
    "fsdp_sharding_strategy = FULL_SHARD\n"

/* The newest checkpoint of from, converted by all ranks. */
static void convert(struct comm *c, const char *from, const char *to, int word, bool weights_only)
{
    const struct convert_conf conf = {.to = weights_only ? CONVERT_FULL : CONVERT_SHARDED,
                                      .dtype = word,
                                      .ranks = weights_only ? 1 : 3,
                                      .max_shard_size = "5GB",
                                      .weights_only = weights_only};
    struct text said = {0};
    struct source *s;
    train_must(source_open_shared(c, from, &s));
    train_must(convert_source(c, s, to, &conf, 0, NULL, &said));
    source_close(&s);
    text_clear(&said);
}

/* This rank's part of an array, with the values that an open checkpoint has for it. */
static void check_array(struct train_run *t, const struct ckpt *k, int array, const char *group,
                        enum dtype via)
{
    const struct tensor_table *table = &t->run.model->table;
    for (int i = 0; i < table->n_rows; i++) {
        struct shard_part p = shard_own_part(t->engine->shard, array, i);
        int64_t n = p.end - p.begin;
        if (n <= 0)
            continue;
        float *want = malloc((size_t)n * sizeof *want);
        char *narrow = malloc((size_t)n * sizeof(double));
        train_must(
            ckpt_read(k, ckpt_array_find(k, group, table->rows[i].name), p.begin, p.end, want));
        dtype_convert(via, narrow, DTYPE_F32, want, n);
        dtype_convert(DTYPE_F32, want, via, narrow, n);
        check_that(memcmp(want, p.values, (size_t)n * sizeof *want) == 0, __FILE__, __LINE__,
                   "%s/%s by way of %s", group, table->rows[i].name, dtype_name(via));
        free(want);
        free(narrow);
    }
}

struct first_run {
    char saves[300];
    struct ckpt *k;
    double loss[N_REST]; /* of the steps that follow */
    double eval;
};

/* Three steps, saved; and the two that follow. */
static void make_first(struct comm *c, const char *folder, struct arena *a, struct first_run *f)
{
    char ini[2048];
    struct train_run t;
    struct eval_report v;
    snprintf(f->saves, sizeof f->saves, "%s/first", folder);
    print_job(ini, sizeof ini, f->saves, "");
    train_open(&t, c, ini, NULL);
    for (int i = 0; i < N_FIRST; i++)
        train_step(&t);
    struct save_request q = {
        .job_text = ini, .run_id = "test-run", .type = CKPT_FULL, .best_loss = NAN};
    train_must(save_checkpoint(t.engine, &q, NULL));
    engine_eval(t.engine, 2, &v);
    f->eval = v.loss;
    for (int i = 0; i < N_REST; i++)
        f->loss[i] = train_step(&t).loss;
    train_close(&t);
    f->k = train_newest(c, f->saves, a);
}

static void test_resume(struct comm *c, const char *folder, struct arena *a,
                        const struct first_run *f)
{
    TEST ("training goes on from weights of any float dtype, in any precision") {
        for (int d = 0; d < N_DTYPES; d++) {
            char ini[2048], to[300], how[300];
            struct train_run t;
            snprintf(to, sizeof to, "%s/resume-%d", folder, d);
            convert(c, f->saves, to, dtypes[d].word, false);
            snprintf(how, sizeof how, FSDP, dtypes[d].dtype == DTYPE_F64 ? "no" : "bf16");
            print_job(ini, sizeof ini, to, how);
            train_open(&t, c, ini, train_newest(c, to, a));
            CHECK(t.engine->step == N_FIRST);
            check_array(&t, f->k, SHARD_MASTER, "model", dtypes[d].dtype);
            check_array(&t, f->k, SHARD_STATE, "optim/exp_avg", DTYPE_F32);
            check_array(&t, f->k, SHARD_STATE + 1, "optim/exp_avg_sq", DTYPE_F32);
            for (int i = 0; i < N_REST; i++) {
                double loss = train_step(&t).loss;
                if (dtypes[d].dtype == DTYPE_F64)
                    CHECK(loss == f->loss[i]);
                else
                    CHECK_NEAR(loss, f->loss[i], 0.05);
            }
            train_close(&t);
        }
    }
}

static struct job *parse(const char *ini, struct arena *a)
{
    struct job *j;
    const struct section_kind *const *kinds = run_kinds(a);
    train_must(job_parse("test.ini", ini, strlen(ini), 0, NULL, kinds, a, &j));
    train_must(job_check(j, kinds));
    return j;
}

static void test_weights_only(struct comm *c, const char *folder, struct arena *a,
                              const struct first_run *f)
{
    char ini[2048], to[300], how[400];
    struct run run;
    TEST ("weights alone are evaluated and begun with, in any dtype; not gone on from") {
        for (int d = 0; d < N_DTYPES; d++) {
            struct device *dev;
            struct engine *e;
            struct eval_report v;
            struct train_run t;
            snprintf(to, sizeof to, "%s/weights-%d", folder, d);
            convert(c, f->saves, to, dtypes[d].word, true);
            print_job(ini, sizeof ini, to, "");
            struct job *j = parse(ini, a);
            CHECK(run_setup(j, c, RUN_TRAIN, 0, train_newest(c, to, a), a, &run) == ERR_DATA);
            CHECK_HAS(err_text(), "holds weights only");
            run_clear(&run);
            train_must(run_setup(j, c, RUN_EVAL, 0, train_newest(c, to, a), a, &run));
            train_must(device_open_cpu(1, device_isa_best(), NULL, &dev));
            train_must(engine_create(&run, dev, &e));
            engine_eval(e, 2, &v);
            CHECK_NEAR(v.loss, f->eval, f->eval * dtypes[d].rel);
            engine_destroy(&e);
            device_close(&dev);
            run_clear(&run);
            snprintf(how, sizeof how, "[model]\ninit_from = %s\n", to);
            char *model = strstr(ini, "[model]\n"), rest[1500];
            snprintf(rest, sizeof rest, "%s", model + strlen("[model]\n"));
            snprintf(model, sizeof ini - (size_t)(model - ini), "%s%s", how, rest);
            train_open(&t, c, ini, NULL);
            check_array(&t, f->k, SHARD_MASTER, "model", dtypes[d].dtype);
            train_close(&t);
        }
    }
}

static void test_range(const char *folder)
{
    char dir[300];
    struct comm *self = comm_self();
    struct ckpt *k;
    TEST ("a value that float32 has not is an error, and named") {
        double big[3] = {1, 1e300, -2};
        float got[3];
        const struct ckpt_array x = {"model", "w", {1, {3}}, DTYPE_F64, "plain", NULL};
        const struct ckpt_piece p = {.array = 0, .begin = 0, .end = 3, .values = big};
        snprintf(dir, sizeof dir, "%s/big-%d", folder, check_rank);
        const struct ckpt_save s = {.output_dir = dir,
                                    .step = 1,
                                    .run_id = "big",
                                    .arrays = &x,
                                    .n_arrays = 1,
                                    .pieces = &p,
                                    .n_pieces = 1,
                                    .meta = "{}"};
        train_must(ckpt_save(self, &s));
        snprintf(dir, sizeof dir, "%s/big-%d/step-00000001", folder, check_rank);
        train_must(ckpt_open(dir, &k));
        CHECK(ckpt_read_as(k, 0, DTYPE_F32, 0, 3, got) == ERR_DATA);
        CHECK_HAS(err_text(), "model/w are beyond the range of float32");
        CHECK(ckpt_read_as(k, 0, DTYPE_F32, 2, 3, got) == ERR_OK && got[0] == -2);
        ckpt_close(&k);
    }
    comm_close(&self);
}

int main(void)
{
    struct comm *c;
    struct first_run f;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    struct arena *a = arena_create();
    char folder[200];
    train_folder(c, folder, sizeof folder);
    make_first(c, folder, a, &f);
    test_resume(c, folder, a, &f);
    test_weights_only(c, folder, a, &f);
    test_range(folder);
    ckpt_close(&f.k);
    arena_destroy(&a);
    return train_end(&c, folder);
}
