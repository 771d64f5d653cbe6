/* Traces: spans nest and are complete, full rings keep the newest, what is written parses, and a
 * run that is timed computes what it computes untimed.
 * RUN: -n 1
 * RUN: -n 2 */
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "train/trace.h"
#include "train_run.h"

#include <unistd.h>

static struct comm *world;
static char folder[256];

/* Write, read back, parse; the events of phase X in their order. */
struct spans {
    struct arena *arena;
    const struct json *root;
    const struct json *x[256];
    int n;
};

static void read_spans(const struct trace *t, struct spans *s)
{
    char path[300], *bytes;
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/trace-%d.json", folder, world->rank);
    train_must(trace_write(t, path, world->rank));
    train_must(file_read(path, 1 << 24, ERR_DATA, &bytes, &n_bytes));
    *s = (struct spans){.arena = arena_create()};
    train_must(json_parse(bytes, n_bytes, s->arena, &s->root));
    free(bytes);
    const struct json *all = json_get(s->root, "traceEvents");
    for (const struct json *e = all ? all->child : NULL; e; e = e->next) {
        const char *ph = NULL;
        train_must(json_get_string(e, "ph", &ph));
        if (strcmp(ph, "X") == 0 && s->n < 256)
            s->x[s->n++] = e;
    }
}

static const char *word(const struct json *e, const char *key)
{
    const char *v = NULL;
    train_must(json_get_string(e, key, &v));
    return v;
}

static double number(const struct json *e, const char *key)
{
    double v = NAN;
    train_must(json_get_f64(e, key, &v));
    return v;
}

/* b lies inside a; the file has nanoseconds. */
static bool holds(const struct json *a, const struct json *b)
{
    double a0 = number(a, "ts"), b0 = number(b, "ts"), slack = 0.002;
    return b0 >= a0 - slack && b0 + number(b, "dur") <= a0 + number(a, "dur") + slack;
}

static void wait_us(double us)
{
    for (double end = clock_now_s() + us * 1e-6; clock_now_s() < end;)
        ;
}

static void test_nesting(void)
{
    struct trace *t;
    struct spans s;
    train_must(trace_create(16, &t));
    trace_begin(t, TRACE_COMPUTE, "before it is on", NULL);
    trace_end(t, TRACE_COMPUTE);
    trace_switch(t, true);
    double start = clock_now_s() * 1e6;
    trace_begin(t, TRACE_COMPUTE, "outer", "a \"quoted\\ path\n\xc3\xa9");
    wait_us(300);
    trace_begin(t, TRACE_IO, "other lane", NULL);
    trace_begin(t, TRACE_COMPUTE, "inner", NULL);
    wait_us(2000);
    trace_end(t, TRACE_COMPUTE);
    trace_end(t, TRACE_COMPUTE);
    wait_us(500);
    trace_end(t, TRACE_IO);
    double end = clock_now_s() * 1e6;
    trace_switch(t, false);
    trace_begin(t, TRACE_COMPUTE, "after it is off", NULL);
    trace_end(t, TRACE_COMPUTE);
    read_spans(t, &s);
    TEST ("spans are recorded only while it is on")
        CHECK(s.n == 3);
    TEST ("spans nest, last in first out, with their times and lanes") {
        CHECK_STR(word(s.x[0], "name"), "inner");
        CHECK_STR(word(s.x[1], "name"), "outer");
        CHECK_STR(word(s.x[2], "name"), "other lane");
        CHECK_STR(word(s.x[0], "cat"), "compute");
        CHECK_STR(word(s.x[2], "cat"), "I/O");
        CHECK(number(s.x[0], "tid") == number(s.x[1], "tid"));
        CHECK(number(s.x[0], "tid") != number(s.x[2], "tid"));
        CHECK(number(s.x[0], "pid") == world->rank);
        CHECK(holds(s.x[1], s.x[0]) && !holds(s.x[0], s.x[1]));
        CHECK(!holds(s.x[1], s.x[2]));
        CHECK(number(s.x[0], "dur") >= 2000 && number(s.x[1], "dur") >= 2300);
        CHECK(number(s.x[1], "ts") >= start - 0.002);
        CHECK(number(s.x[2], "ts") + number(s.x[2], "dur") <= end + 0.002);
    }
    TEST ("details are escaped, and left out where there are none") {
        CHECK_STR(word(json_get(s.x[1], "args"), "of"), "a \"quoted\\ path\n\xc3\xa9");
        CHECK(!json_get(s.x[0], "args"));
    }
    TEST ("every lane has its name") {
        static const char *const want[] = {"compute", "communication", "data", "I/O",
                                           "background communication"};
        int n = 0;
        for (const struct json *e = json_get(s.root, "traceEvents")->child; e; e = e->next)
            if (strcmp(word(e, "name"), "thread_name") == 0 && n < TRACE_LANES)
                CHECK_STR(word(json_get(e, "args"), "name"), want[n++]);
        CHECK(n == TRACE_LANES);
    }
    arena_destroy(&s.arena);
    trace_destroy(&t);
}

static void test_ring(void)
{
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    struct trace *t;
    struct spans s;
    train_must(trace_create(4, &t));
    trace_switch(t, true);
    trace_begin(t, TRACE_DATA, "kept", NULL);
    trace_end(t, TRACE_DATA);
    for (int i = 0; i < 10; i++) {
        if (i == 4) {
            TEST ("a ring that is just full has lost nothing")
                CHECK(trace_lost(t) == 0);
        }
        trace_begin(t, TRACE_COMPUTE, names[i], NULL);
        trace_end(t, TRACE_COMPUTE);
    }
    read_spans(t, &s);
    TEST ("a full ring keeps the newest, oldest first, and counts the rest") {
        CHECK(trace_lost(t) == 6);
        CHECK_STR(word(json_get(s.root, "otherData"), "lost_spans"), "6");
        CHECK(s.n == 5);
        for (int i = 0; i < 4; i++)
            CHECK_STR(word(s.x[i], "name"), names[6 + i]);
        for (int i = 1; i < 4; i++)
            CHECK(number(s.x[i], "ts") >= number(s.x[i - 1], "ts"));
    }
    TEST ("lanes do not push each other out")
        CHECK_STR(word(s.x[4], "name"), "kept");
    arena_destroy(&s.arena);
    trace_destroy(&t);
}

static void test_none(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/none-%d.json", folder, world->rank);
    TEST ("no trace: everything does nothing") {
        trace_switch(NULL, true);
        trace_begin(NULL, TRACE_COMM, "x", NULL);
        trace_end(NULL, TRACE_COMM);
        CHECK(trace_attach(NULL, NULL, world) == ERR_OK);
        trace_detach(NULL);
        CHECK(trace_lost(NULL) == 0);
        CHECK(trace_write(NULL, path, 0) == ERR_OK && access(path, F_OK) != 0);
    }
    struct trace *t;
    train_must(trace_create(4, &t));
    snprintf(path, sizeof path, "%s/no/such/folder.json", folder);
    TEST ("a file that cannot be written is an error that names it") {
        CHECK(trace_write(t, path, 0) == ERR_RESOURCE);
        CHECK_HAS(err_text(), path);
    }
    trace_destroy(&t);
}

static const char job[] = "[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 16\n"
                          "block_size = 8\n[data]\npath = jobs/data/pride_and_prejudice.txt\n"
                          "tokenizer = bytes\nbatch_size = 2\n[job]\nmax_steps = 9\n";

static int count(const struct spans *s, const char *name, const char *of)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const struct json *args = json_get(s->x[i], "args");
        n += strcmp(word(s->x[i], "name"), name) == 0 &&
             (!of || (args && strcmp(word(args, "of"), of) == 0));
    }
    return n;
}

static void check_modules(const struct spans *s)
{
    static const char *const paths[] = {"h.0.attn.c_attn", "h.1.mlp.c_fc"};
    CHECK(count(s, "Block forward", NULL) == 2 && count(s, "Block backward", NULL) == 2);
    CHECK(count(s, "LayerNorm forward", NULL) == 5 && count(s, "LayerNorm backward", NULL) == 5);
    for (int i = 0; i < 2; i++) {
        CHECK(count(s, "Linear forward", paths[i]) == 1);
        CHECK(count(s, "Linear backward", paths[i]) == 1);
    }
}

static void test_run(void)
{
    struct train_run plain, timed;
    struct trace *t;
    struct spans s;
    train_open(&plain, world, job, NULL);
    train_open(&timed, world, job, NULL);
    struct comm *group = timed.engine->group;
    const struct comm before = *group;
    const struct hooks *root_hooks = timed.run.model->root->hooks;
    struct step_report a[3], b[3];
    for (int i = 0; i < 3; i++)
        a[i] = train_step(&plain);
    train_must(trace_create(256, &t));
    train_must(trace_attach(t, timed.run.model->root, group));
    b[0] = train_step(&timed);
    trace_switch(t, true);
    b[1] = train_step(&timed);
    trace_switch(t, false);
    trace_detach(t);
    b[2] = train_step(&timed);
    read_spans(t, &s);
    TEST ("a timed run has the bits of the same run untimed, on any number of ranks")
        for (int i = 0; i < 3; i++)
            CHECK(a[i].loss == b[i].loss && a[i].grad_norm == b[i].grad_norm);
    TEST ("every module of the step is there once a direction, with its path")
        check_modules(&s);
    TEST ("the step's collectives are in their lane") {
        CHECK(count(&s, "sum_i64", before.ops->name) >= 1);
        CHECK(count(&s, "reduce_scatter", before.ops->name) > 0);
        CHECK(count(&s, "wait for sum", before.ops->name) > 0);
        int n_hidden = 0;
        for (int i = 0; i < s.n; i++)
            n_hidden += strcmp(word(s.x[i], "cat"), "background communication") == 0;
        CHECK((n_hidden > 0) == (group->worker != NULL));
        CHECK(trace_lost(t) == 0);
    }
    TEST ("afterwards hooks and communicator are as they were") {
        CHECK(group->ops == before.ops && group->impl == before.impl);
        CHECK(timed.run.model->root->hooks == root_hooks);
    }
    arena_destroy(&s.arena);
    trace_destroy(&t);
    train_close(&plain);
    train_close(&timed);
}

static void test_comms(void)
{
    struct comm *other = comm_split(world, 0, world->rank);
    const struct comm before = *other;
    struct trace *t;
    struct spans s;
    train_must(trace_create(16, &t));
    train_must(trace_attach(t, NULL, world));
    trace_attach_comm(t, NULL);
    trace_attach_comm(t, other);
    trace_switch(t, true);
    world->ops->barrier(world);
    other->ops->barrier(other);
    trace_switch(t, false);
    trace_detach(t);
    read_spans(t, &s);
    TEST ("several communicators at once") {
        CHECK(count(&s, "barrier", NULL) == 2);
        CHECK(other->ops == before.ops && other->impl == before.impl);
    }
    arena_destroy(&s.arena);
    trace_destroy(&t);
    comm_close(&other);
}

int main(void)
{
    train_must(comm_open_world(&world));
    check_rank = world->rank;
    train_folder(world, folder, sizeof folder);
    test_nesting();
    test_ring();
    test_none();
    test_comms();
    test_run();
    world->ops->barrier(world);
    if (world->rank == 0)
        train_must(file_remove_tree(folder));
    comm_close(&world);
    return check_done();
}
