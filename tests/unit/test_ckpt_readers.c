/* Readers beside a run that saves and deletes: each sees one whole step or the next, never a part.
 * RUN: -n 1 */
#include "ckpt_fixture.h"

#include "ckpt/source.h"
#include <signal.h>
#include <sys/wait.h>

enum { N_SMALL = 3, N_SAVES = 60 };

static const struct ckpt_array small_arrays[N_SMALL] = {
    {"model", "wte.weight", {2, {64, 300}}, DTYPE_F32, "out_in", NULL},
    {"model", "bias", {1, {7}}, DTYPE_F64, "plain", NULL},
    {"optim/exp_avg", "wte.weight", {2, {64, 300}}, DTYPE_F32, "out_in", NULL},
};

/* Saves that each take the place of the one before, sharded and full in turns; step = seed. */
static int write_steps(const char *dir)
{
    struct comm *c = comm_self();
    int rc = ERR_OK;
    for (int i = 1; i <= N_SAVES && rc == ERR_OK; i++)
        rc = save_typed(c, i % 2 ? CKPT_SHARDED : CKPT_FULL, small_arrays, N_SMALL, dir, i, "run",
                        1, i);
    comm_close(&c);
    return rc;
}

/* All values of what is found are those of one step.  Returns it; -1: none is there yet. */
static int64_t read_once(const char *what)
{
    struct source *s;
    int64_t seed;
    if (source_open(what, &s) != ERR_OK) {
        check_that(strstr(err_text(), "holds no complete") || strstr(err_text(), "no checkpoint"),
                   __FILE__, __LINE__, "%s: %s", what, err_text());
        return -1;
    }
    CHECK(json_get_i64(s->meta, "seed", &seed) == ERR_OK && seed == ckpt_step(s->ckpt));
    for (int i = 0; i < s->n_arrays; i++) {
        const struct ckpt_array *x = &s->arrays[i];
        char *want = make_values(x, i, (int)seed), *got = malloc(array_bytes(x));
        int rc = source_read(s, i, 0, shape_elems(&x->shape), got);
        check_that(rc == ERR_OK, __FILE__, __LINE__, "%s: %s", what, err_text());
        check_that(memcmp(want, got, array_bytes(x)) == 0, __FILE__, __LINE__,
                   "%s: %s/%s is not of step %lld", what, x->group, x->name, (long long)seed);
        free(want);
        free(got);
    }
    source_close(&s);
    return seed;
}

/* Read while the child writes; the last time when it has ended. */
static void read_steps(const char *dir, const char *what, pid_t child)
{
    char path[MAX_PATH];
    int status = 0, n_reads = 0;
    int64_t last = 0;
    bool ended = false;
    join(path, dir, what);
    while (!ended) {
        ended = waitpid(child, &status, WNOHANG) == child;
        int64_t step = read_once(path);
        n_reads += step >= 0;
        check_that(step < 0 ? last == 0 : step >= last, __FILE__, __LINE__,
                   "%s: step %lld behind step %lld", what, (long long)step, (long long)last);
        last = step > last ? step : last;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(last == N_SAVES);
    printf("# %s: %d reads during %d saves\n", what, n_reads, N_SAVES);
}

int main(void)
{
    static const char *const runs[] = {"a", "b"}, *const whats[] = {"a/latest", "b"};
    struct comm *c = comm_self();
    char dir[MAX_PATH], path[MAX_PATH];
    scratch_make(c, dir);
    TEST ("keep = 1: `latest` and the run's folder, read while steps come and go") {
        for (int i = 0; i < 2; i++) {
            CHECK(file_make_dirs(join(path, dir, runs[i])) == ERR_OK);
            fflush(stdout);
            pid_t child = fork();
            if (child == 0)
                _exit(write_steps(path));
            read_steps(dir, whats[i], child);
        }
    }
    file_remove_tree(dir);
    comm_close(&c);
    return check_done();
}
