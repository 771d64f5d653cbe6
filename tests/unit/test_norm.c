/* The global norm: the same bits on any number of ranks and units, right to the last place.
 * RUN: -n 1
 * RUN: -n 2
 * RUN: -n 3 */
#include "train_run.h"

#include "base/file.h"

static const char job_text[] =
    "[job]\nmax_steps = 1\n[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 48\n"
    "block_size = 8\n[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\n"
    "batch_size = 1\n";

/* The gradient of every rank as if summed already: by tensor and index. */
static void set_gradient(struct shard *s, float std)
{
    for (int r = 0; r < s->plan->n_rows; r++) {
        struct shard_part g = shard_held_part(s, SHARD_GRAD, r);
        rng_fill_normal(rng_key_make(5, (uint64_t)r), g.begin, g.end - g.begin, 0, std, g.values);
    }
}

static double plain_norm(const struct shard *s)
{
    long double sum = 0;
    for (int r = 0; r < s->plan->n_rows; r++) {
        const float *g = s->grad + s->plan->place[r].begin;
        for (int64_t i = 0; i < shape_elems(&s->model->table.rows[r].shape); i++)
            sum += (long double)g[i] * g[i];
    }
    return (double)sqrtl(sum);
}

static double norm_alone(float std)
{
    struct comm *self = comm_self();
    struct train_run t;
    bool finite;
    train_open(&t, self, job_text, NULL);
    set_gradient(t.engine->shard, std);
    double norm = shard_grad_norm(t.engine->shard, &finite);
    CHECK(finite);
    train_close(&t);
    comm_close(&self);
    return norm;
}

int main(void)
{
    struct comm *c;
    struct train_run t;
    bool finite;
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    train_open(&t, c, job_text, NULL);
    struct shard *s = t.engine->shard;
    TEST ("large and small gradients: the plain sum's norm, one rank's bits") {
        const float std[] = {1, 1e-18f, 1e15f, 3e-3f};
        for (int i = 0; i < 4; i++) {
            set_gradient(s, std[i]);
            double norm = shard_grad_norm(s, &finite), plain = plain_norm(s);
            CHECK(finite);
            CHECK_NEAR(norm / plain, 1, 1e-14);
            CHECK(norm == norm_alone(std[i]));
        }
    }
    TEST ("a gradient of nothing has norm 0") {
        memset(s->grad, 0, (size_t)s->plan->n_elem * sizeof *s->grad);
        CHECK(shard_grad_norm(s, &finite) == 0);
        CHECK(finite);
    }
    TEST ("one infinity or NaN, on the last rank only, is seen by all") {
        const float bad[] = {INFINITY, NAN, 3e38f};
        for (int i = 0; i < 3; i++) {
            set_gradient(s, 1);
            int64_t begin, end;
            plan_own_part(s->plan, t.run.model, 0, c->size - 1, &begin, &end);
            if (c->rank == c->size - 1)
                s->grad[s->plan->place[0].begin + end - 1] = bad[i];
            double norm = shard_grad_norm(s, &finite);
            CHECK(finite == (i == 2)); /* fp64 squares hold what fp32 cannot */
            CHECK(i < 2 || norm > 2.9e38);
        }
    }
    train_close(&t);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
