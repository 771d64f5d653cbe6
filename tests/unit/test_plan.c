/* Properties of plans for many world sizes, without MPI; every option table of the program.
 * RUN: -n 1 */
#include "check.h"
#include "parallel/shard.h"
#include "train/conf.h"

static struct model *gpt(struct arena *a, int64_t n_layer, int64_t C)
{
    char ini[256];
    struct job *j;
    const struct section_kind *const *kinds = run_kinds(a);
    const struct model_family *f = model_family_find("gpt2");
    void *conf = arena_alloc(a, f->conf_bytes);
    const char *key;
    struct model *m;
    struct sample_shape shape = {.kind = SAMPLE_TOKENS, .vocab = 256};
    snprintf(ini, sizeof ini, "[model]\nn_layer = %d\nn_head = 2\nn_embd = %d\nblock_size = 16\n",
             (int)n_layer, (int)C);
    REQUIRE(job_parse("t.ini", ini, strlen(ini), 0, NULL, kinds, a, &j) == ERR_OK);
    REQUIRE(job_read(j, "model", NULL, f->opts, conf) == ERR_OK);
    REQUIRE(model_build("", f, conf, NULL, &shape, a, &key, &m) == ERR_OK);
    return m;
}

/* Every element of every tensor is in exactly one unit and owned by exactly one rank. */
static void check_plan(const struct model *m, const struct plan *p)
{
    int64_t end_of_last = 0;
    for (int u = 0; u < p->n_units; u++) {
        const struct plan_unit *x = &p->unit[u];
        CHECK(x->begin == end_of_last && x->begin % BLOCK_ELEMS == 0);
        CHECK(x->n_elem % BLOCK_ELEMS == 0);
        CHECK(x->cut[0] == 0 && x->cut[p->size] == x->n_elem);
        int64_t least = x->n_elem, most = 0;
        for (int r = 0; r < p->size; r++) {
            int64_t n = x->cut[r + 1] - x->cut[r];
            CHECK(n >= 0 && x->cut[r] % BLOCK_ELEMS == 0);
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        CHECK(most - least <= BLOCK_ELEMS);
        end_of_last = x->begin + x->n_elem;
    }
    CHECK(end_of_last == p->n_elem);
    for (int row = 0; row < p->n_rows; row++) {
        CHECK(p->place[row].begin % BLOCK_ELEMS == 0);
        int64_t at = 0, begin, end, n = shape_elems(&m->table.rows[row].shape);
        for (int r = 0; r < p->size; r++) {
            plan_own_part(p, m, row, r, &begin, &end);
            if (begin == end)
                continue;
            CHECK(begin == at);
            at = end;
        }
        CHECK(at == n);
    }
}

static const struct wrap blocks = {.kind = WRAP_BLOCKS};

static void test_sizes(struct arena *a)
{
    struct model *m = gpt(a, 3, 64);
    TEST ("whatever the number of ranks, each element has one unit and one owner") {
        for (int size = 1; size <= 130; size++)
            check_plan(m, plan_make(m, policy_find("MULTI_CPU"), &blocks, size, a));
        check_plan(m, plan_make(m, policy_find("MULTI_CPU"), &blocks, 10007, a));
    }
    TEST ("one unit a block and one for the rest; by class names; whole") {
        const char *const linear[] = {"linear", NULL}, *const hf[] = {"GPT2Block", NULL};
        const struct wrap by_class = {.kind = WRAP_CLASSES, .classes = linear};
        const struct wrap by_alias = {.kind = WRAP_CLASSES, .classes = hf};
        const struct wrap whole = {.kind = WRAP_NONE};
        const struct wrap by_size = {.kind = WRAP_SIZE, .min_params = 30000};
        const struct wrap never = {.kind = WRAP_SIZE, .min_params = 1 << 30};
        CHECK(plan_make(m, policy_find("NO"), &blocks, 1, a)->n_units == 4);
        CHECK(plan_make(m, policy_find("NO"), &by_alias, 1, a)->n_units == 4);
        CHECK(plan_make(m, policy_find("NO"), &by_class, 1, a)->n_units == 1 + 3 * 4);
        CHECK(plan_make(m, policy_find("NO"), &whole, 1, a)->n_units == 1);
        /* a block's MLP has 33,088 parameters; what is left of the block has fewer than 30,000 */
        CHECK(plan_make(m, policy_find("NO"), &by_size, 1, a)->n_units == 4);
        CHECK(plan_make(m, policy_find("NO"), &never, 1, a)->n_units == 1);
    }
    TEST ("padding is below 0.2 % where tensors are not tiny") {
        struct model *large = gpt(a, 2, 768);
        struct plan *p = plan_make(large, policy_find("NO"), &blocks, 1, a);
        CHECK(p->n_params == tensor_table_elems(&large->table));
        CHECK((double)(p->n_elem - p->n_params) < 0.002 * (double)p->n_params);
    }
}

static void measure(const struct model *m, const struct device *dev, int64_t B, enum pass_kind kind,
                    struct plan_memory *out)
{
    const struct plan_case c = {.B = B, .T = 16, .kind = kind};
    plan_measure(m, dev, &c, out);
}

static void test_measure(struct arena *a)
{
    struct model *m = gpt(a, 3, 64);
    struct device *dev;
    REQUIRE(device_open_cpu(1, device_isa_best(), NULL, &dev) == ERR_OK);
    TEST (
        "activations grow with the batch, evaluation needs less, an empty batch next to nothing") {
        struct plan_memory one, four, eval, empty;
        measure(m, dev, 1, PASS_TRAIN, &one);
        measure(m, dev, 4, PASS_TRAIN, &four);
        measure(m, dev, 4, PASS_EVAL, &eval);
        measure(m, dev, 0, PASS_TRAIN, &empty);
        CHECK(four.tape_bytes > 3 * one.tape_bytes && four.tape_bytes < 5 * one.tape_bytes);
        CHECK(eval.tape_bytes < four.tape_bytes);
        CHECK(empty.tape_bytes < one.tape_bytes);
    }
    device_close(&dev);
}

/* What a step of n bytes an array sends on a link between two nodes of two ranks. */
static void test_link(struct arena *a)
{
    static const struct {
        const char *policy;
        int group;
        bool node_memory;
        double gathered, summed; /* times the bytes of the model */
    } cases[] = {
        {"MULTI_CPU", 4, true, .5, .5},      /* half of the sum comes, half of it goes */
        {"MULTI_CPU", 4, false, .75, .5},    /* all but one part pass by in a ring */
        {"SHARD_GRAD_OP", 4, true, .5, .5},  /* once a step */
        {"HYBRID_SHARD", 2, true, .5, .5},   /* parts between replicas */
        {"HYBRID_SHARD", 1, false, .75, .5}, /* each rank a replica: a ring of four */
    };
    struct model *m = gpt(a, 3, 64);
    const struct shard_world two = {1, 1, 2};
    TEST ("bytes on the link between two nodes: a tree once, a ring by every node") {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct shard_traffic x;
            const struct shard_conf conf = {.node_memory = cases[i].node_memory};
            const struct shard_world w = {1, 4 / cases[i].group, 2};
            struct plan *p = plan_make(m, policy_find(cases[i].policy), &blocks, cases[i].group, a);
            shard_count_traffic(p, m, &conf, &w, &x);
            double want = (cases[i].gathered + cases[i].summed) * 4 * (double)p->n_elem;
            CHECK_NEAR(x.left, want, 1e-6 * want);
        }
    }
    TEST ("on one node nothing leaves it, and on as many nodes as ranks all that is sent") {
        struct plan *p = plan_make(m, policy_find("FULL_SHARD"), &blocks, 2, a);
        struct shard_traffic x;
        const struct shard_conf conf = {.node_memory = false};
        shard_count_traffic(p, m, &conf, &two, &x);
        CHECK(x.left == 0 && x.sent > 0);
        shard_count_traffic(p, m, &conf, &(struct shard_world){1, 1, 1}, &x);
        CHECK_NEAR(x.left, x.sent, 1e-6 * x.sent);
        shard_count_traffic(p, m, &conf, &(struct shard_world){3, 4, 1}, &x);
        CHECK_NEAR(x.left, x.sent, 1e-6 * x.sent);
    }
}

/* Of what backward gathers from groups of k neighbours, what leaves a node: times the bytes that
 * come again. */
static void test_second_link(struct arena *a)
{
    static const struct {
        int size, here, k;
        bool node_memory;
        double left, sent;
    } cases[] = {
        {8, 2, 2, true, 0, .5},        {8, 2, 2, false, 0, .5},    {8, 4, 2, true, 0, .5},
        {8, 2, 4, true, .5, .75},      {8, 2, 4, false, .75, .75}, {16, 2, 8, true, .75, .875},
        {16, 2, 8, false, .875, .875}, {6, 3, 2, true, .5, .5}, /* the middle pair is on both */
        {6, 3, 2, false, .5, .5},      {8, 1, 4, true, .75, .75},  {8, 8, 2, false, 0, .5},
    };
    struct model *m = gpt(a, 3, 64);
    TEST ("second parts: what a group's gather sends, and what of it leaves a node") {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct shard_traffic x, y, z;
            struct shard_conf conf = {.node_memory = cases[i].node_memory};
            const struct shard_world w = {1, 1, cases[i].here};
            struct plan *p = plan_make(m, policy_find("FULL_SHARD"), &blocks, cases[i].size, a);
            struct plan *once =
                plan_make(m, policy_find("SHARD_GRAD_OP"), &blocks, cases[i].size, a);
            shard_count_traffic(p, m, &conf, &w, &x);
            shard_count_traffic(once, m, &conf, &w, &z); /* all that is gathered in forward */
            conf.second_size = cases[i].k;
            shard_count_traffic(p, m, &conf, &w, &y);
            double again = 4 * (double)(p->n_elem - p->unit[0].n_elem);
            CHECK_NEAR(y.gathered, z.gathered + cases[i].sent * again, 1e-6 * y.gathered);
            CHECK_NEAR(y.left, z.left + cases[i].left * again, 1e-6 * again);
            CHECK(y.summed == x.summed && y.gathered < x.gathered);
        }
    }
}

int main(void)
{
    struct arena *a = arena_create();
    test_sizes(a);
    test_measure(a);
    test_link(a);
    test_second_link(a);
    TEST ("every option table of the program is sound") {
        CHECK(job_check_kinds(run_kinds(a), a) == ERR_OK);
        CHECK_STR(err_text(), "");
    }
    arena_destroy(&a);
    return check_done();
}
