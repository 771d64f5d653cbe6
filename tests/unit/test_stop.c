/* Stopping: what a signal leaves time for.
 * RUN: -n 1 */
#include "base/hash.h"
#include "check.h"
#include "device/cpu/cpu.h"
#include "train/stop.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that sends SIGUSR1 as fast as it can, while its parent lives. */
static pid_t pester(void)
{
    pid_t target = getpid(), child = fork();
    if (child != 0)
        return child;
    while (getppid() == target) {
        kill(target, SIGUSR1);
        usleep(20);
    }
    _exit(0);
}

enum { SIDE = 160, SHAPES = 64, ROUNDS = 100 };

/* Shapes of all kinds: whole tiles and rests, every side either way round. */
static struct gemm shape_of(int i)
{
    struct gemm g = {.M = 16 + i * 37 % 144,
                     .N = 16 + i * 53 % 144,
                     .K = 16 + i * 71 % 144,
                     .a_trans = i & 1,
                     .b_trans = i & 2,
                     .lda = SIDE,
                     .ldb = SIDE,
                     .ldc = SIDE};
    return g;
}

static uint64_t product_hash(struct device *dev, int i)
{
    static float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
    struct gemm g = shape_of(i);
    for (int k = 0; k < SIDE * SIDE; k++) {
        a[k] = (float)(k % 7 - 3);
        b[k] = (float)(k % 5 - 2);
        c[k] = 0;
    }
    void *block = malloc((size_t)(1 + i * 97));
    cpu_product(dev, &g, a, b, c, NULL);
    free(block);
    return hash64(c, sizeof c, 0);
}

/* What a product's kernel does with its stack, no signal may find out: the heap stays whole, and so
 * does the product. */
static void products_under_signals(void)
{
    uint64_t want[SHAPES];
    struct device *dev;
    REQUIRE(device_open_cpu(2, device_isa_best(), NULL, &dev) == ERR_OK);
    for (int i = 0; i < SHAPES; i++)
        want[i] = product_hash(dev, i);
    pid_t child = pester();
    int n_wrong = 0;
    for (int i = 0; i < SHAPES * ROUNDS; i++)
        n_wrong += product_hash(dev, i % SHAPES) != want[i % SHAPES];
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(n_wrong == 0);
    device_close(&dev);
}

int main(void)
{
    struct stop s;
    stop_install();
    stop_init(&s, 0);
    TEST ("nothing asks to stop, and a save has all the time there is") {
        CHECK(!stop_wanted(&s) && stop_grace_s(&s) > 1e6);
    }
    TEST ("a save fits if the last one did with half as much again in hand") {
        CHECK(stop_save_fits(1, 0.6) && !stop_save_fits(1, 0.7));
        CHECK(stop_save_fits(0, 0) && !stop_save_fits(-0.1, 0));
        CHECK(stop_save_fits(1, -1) && !stop_save_fits(0.4, -1));
        CHECK(stop_save_fits(1e9, 1e8));
    }
    TEST ("USR1 leaves all the time, TERM a second under mpirun and half a minute under Slurm") {
        raise(SIGUSR1);
        CHECK(stop_wanted(&s) && stop_grace_s(&s) > 1e6);
        CHECK_STR(stop_reason(&s), "SIGUSR1");
        stop_init(&s, 0);
        setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
        raise(SIGTERM);
        CHECK(stop_wanted(&s) && stop_grace_s(&s) <= 1);
        CHECK_STR(stop_reason(&s), "SIGTERM");
        unsetenv("OMPI_COMM_WORLD_SIZE");
        CHECK(stop_grace_s(&s) > 1 && stop_grace_s(&s) <= 30);
    }
    TEST ("signals while products run harm nothing")
        products_under_signals();
    TEST ("a time limit") {
        stop_init(&s, 1e-9);
        CHECK(stop_wanted(&s));
    }
    return check_done();
}
