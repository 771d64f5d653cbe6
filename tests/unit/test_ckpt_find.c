/* Which step folder is meant, whether it fits the model, and what a killed job leaves behind.
 * RUN: -n 1 */
#include "ckpt_fixture.h"

#include "base/clock.h"
#include <signal.h>
#include <sys/wait.h>

enum { N_SMALL = 4 };

static const struct ckpt_array arrays[N_SMALL] = {
    {"model", "wte.weight", {2, {8, 3}}, DTYPE_F32, "out_in", NULL},
    {"model", "wpe.weight", {2, {4, 3}}, DTYPE_F32, "out_in", NULL},
    {"model", "free", {1, {2}}, DTYPE_F32, NULL, NULL},
    {"optim/exp_avg", "wte.weight", {2, {8, 3}}, DTYPE_F32, "out_in", NULL},
};

static int save(struct comm *c, const char *dir, int64_t step, int64_t keep, int seed)
{
    return save_arrays(c, arrays, N_SMALL, dir, step, "run", keep, seed);
}

static void check_find(const char *what, const char *want)
{
    struct arena *a = arena_create();
    const char *dir = "unset";
    int rc = ckpt_find(what, a, &dir);
    check_that(rc == ERR_OK, __FILE__, __LINE__, "%s: %s", what, err_text());
    if (rc == ERR_OK && want)
        CHECK_STR(dir, want);
    else if (rc == ERR_OK)
        check_that(dir == NULL, __FILE__, __LINE__, "%s: found %s", what, dir);
    arena_destroy(&a);
}

static void check_lost(const char *what, const char *why)
{
    struct arena *a = arena_create();
    const char *dir;
    check_that(ckpt_find(what, a, &dir) == ERR_DATA, __FILE__, __LINE__, "%s: found", what);
    CHECK_HAS(err_text(), why);
    arena_destroy(&a);
}

static void test_find(struct comm *c, const char *dir)
{
    char run[MAX_PATH], p[MAX_PATH], five[MAX_PATH], nine[MAX_PATH], slash[MAX_PATH];
    join(run, dir, "run");
    join(five, run, "step-00000005");
    join(nine, run, "step-00000009");
    TEST ("a run's folder without steps holds none; latest and wrong names are errors") {
        CHECK(file_make_dirs(join(p, run, "step-00000001.tmp")) == ERR_OK);
        CHECK(file_make_dirs(join(p, run, "step-7")) == ERR_OK);
        check_find(run, NULL);
        check_lost(join(p, run, "latest"), "No such file");
        check_lost(join(p, dir, "nowhere"), "nowhere: No such file or directory");
        check_lost(join(p, run, "step-7"), "its save was not finished");
    }
    TEST ("a step, a run and latest, with and without a slash behind") {
        CHECK(save(c, run, 5, 0, 1) == ERR_OK && save(c, run, 9, 0, 2) == ERR_OK);
        check_find(five, five);
        check_find(run, nine);
        check_find(join(p, run, "latest"), nine);
        check_find(join(slash, run, "latest//"), nine);
        check_find(join(slash, run, ""), nine);
    }
    TEST ("files and missing steps: the text helps") {
        check_lost(join(p, five, "full.h5"), "is a file; a checkpoint is a folder: ");
        check_lost(join(p, run, "step-00000006"), "the newest beside it is ");
        CHECK_HAS(err_text(), nine);
    }
    TEST ("a broken latest, a step without manifest and a .tmp are passed over") {
        CHECK(rename(nine, join(p, run, "step-00000009.tmp")) == 0);
        check_find(join(p, run, "latest"), five);
        check_find(run, five);
        CHECK(rename(join(p, run, "step-00000009.tmp"), nine) == 0);
        CHECK(unlink(join(p, nine, "manifest.json")) == 0);
        check_find(join(p, run, "latest"), five);
        check_find(run, five);
        CHECK(unlink(join(p, run, "latest")) == 0);
        check_find(join(p, run, "latest"), five);
    }
    TEST ("a step caught while it was replaced is found, and healed by the next save") {
        CHECK(rename(five, join(p, run, "step-00000005.old")) == 0);
        check_find(run, p);
        CHECK(good_seed(p) == 1);
        CHECK(save(c, run, 6, 0, 3) == ERR_OK);
        CHECK(good_seed(five) == 1 && !exists(run, "step-00000005.old"));
        CHECK(!exists(run, "step-00000001.tmp"));
        CHECK(exists(run, "step-7"));
    }
    TEST ("relative paths, and an absolute latest") {
        CHECK(chdir(run) == 0);
        check_find(".", "./step-00000006");
        check_find("latest", "./step-00000006");
        check_find("step-00000005", "step-00000005");
        CHECK(unlink("latest") == 0 && symlink(five, "latest") == 0);
        check_find("latest/", five);
        CHECK(chdir("/") == 0);
    }
}

static void match(const struct ckpt *k, int i, struct ckpt_array x, const char *want)
{
    struct ckpt_array expected[3];
    memcpy(expected, arrays, sizeof expected);
    expected[i] = x;
    CHECK(ckpt_match(k, "model", expected, 3) == ERR_DATA);
    CHECK_HAS(err_text(), want);
}

static void test_match(const char *dir)
{
    char p[MAX_PATH];
    struct ckpt *k = NULL;
    TEST ("the model's arrays against the checkpoint's") {
        CHECK(ckpt_open(join(p, dir, "run/step-00000006"), &k) == ERR_OK);
        CHECK(ckpt_match(k, "model", arrays, 3) == ERR_OK);
        CHECK(ckpt_match(k, "optim/exp_avg", arrays, 1) == ERR_OK);
        struct ckpt_array x = arrays[0];
        x.name = "wtf.weight";
        match(k, 0, x, "has no model/wtf.weight (nearest: wte.weight)");
        x = arrays[0];
        x.shape.dim[1] = 4;
        match(k, 0, x, "model/wte.weight has shape (8, 3), the model wants (8, 4)");
        x = arrays[0];
        x.layout = "in_out";
        match(k, 0, x, "model/wte.weight has layout out_in, the model wants in_out");
        x = arrays[0];
        x.dtype = DTYPE_BF16; /* another float is read as it is wanted */
        CHECK(ckpt_match(k, "model", &x, 1) == ERR_DATA);
        CHECK_HAS(err_text(), "which the model does not");
        x.dtype = DTYPE_I64;
        match(k, 0, x, "model/wte.weight holds float32, the model wants int64");
        x = arrays[2];
        x.layout = "plain";
        match(k, 2, x, "model/free does not say its layout");
        CHECK(ckpt_match(k, "model", arrays, 2) == ERR_DATA);
        CHECK_HAS(err_text(), "has model/free, which the model does not");
        CHECK(ckpt_match(k, "optim/exp_avg_sq", arrays, 1) == ERR_DATA);
        CHECK_HAS(err_text(), "has no group optim/exp_avg_sq");
        ckpt_close(&k);
    }
}

/* Save steps 1, 2, …, each twice, and say through the pipe what is complete, until killed. */
_Noreturn static void save_for_ever(const char *run, int out)
{
    struct comm *c = comm_self();
    for (int64_t step = 1;; step++)
        for (int again = 0; again < 2; again++) {
            if (save(c, run, step, 2, (int)step + 1000 * again) != ERR_OK)
                _exit(1);
            if (write(out, &step, sizeof step) != sizeof step)
                _exit(2);
        }
}

/* Kill it after so many seconds; the last step that it called complete, or -1 if it failed. */
static int64_t kill_after(const char *run, double seconds)
{
    int fd[2], status = 0;
    int64_t step, last = 0;
    if (pipe(fd) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        close(fd[0]);
        save_for_ever(run, fd[1]);
    }
    close(fd[1]);
    usleep((useconds_t)(seconds * 1e6));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    while (read(fd[0], &step, sizeof step) == sizeof step)
        last = step;
    close(fd[0]);
    return WIFSIGNALED(status) ? last : -1;
}

static void test_crash(struct comm *c, const char *dir)
{
    enum { N_KILLS = 60 };
    char run[MAX_PATH];
    double begin = clock_now_s();
    int n_found = 0;
    join(run, dir, "crash");
    TEST ("killed at any moment: the newest complete step is whole, and saving goes on") {
        for (int i = 0; i < N_KILLS && clock_now_s() - begin < 20; i++) {
            struct arena *a = arena_create();
            const char *found = NULL;
            CHECK(file_remove_tree(run) == ERR_OK && file_make_dirs(run) == ERR_OK);
            int64_t last = kill_after(run, 0.002 + 0.00083 * i);
            CHECK(last >= 0);
            CHECK(ckpt_find(run, a, &found) == ERR_OK);
            CHECK(found || last == 0);
            if (found) {
                int seed = good_seed(found);
                check_that(seed % 1000 >= last, __FILE__, __LINE__,
                           "%s after step %lld: seed %d, %s", found, (long long)last, seed,
                           err_text());
                n_found++;
            }
            CHECK(save(c, run, 5000, 1, 77) == ERR_OK);
            CHECK(ckpt_find(run, a, &found) == ERR_OK && good_seed(found) == 77);
            arena_destroy(&a);
        }
        CHECK(n_found > 5);
    }
}

int main(void)
{
    struct comm *c = comm_self();
    char dir[MAX_PATH];
    scratch_make(c, dir);
    test_find(c, dir);
    test_match(dir);
    test_crash(c, dir);
    file_remove_tree(dir);
    comm_close(&c);
    return check_done();
}
