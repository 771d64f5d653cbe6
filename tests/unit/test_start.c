/* No rank holds more than its part and one unit while a sharded model is made or loaded, as the
 * kernel counts it.
 * RUN: -n 4 */
#include "train_run.h"

#include "base/memory.h"
#include "train/save.h"
#include <fcntl.h>
#include <unistd.h>

/* The sanitizers keep what was freed, and shadows of it. */
#ifdef __SANITIZE_ADDRESS__

int main(void)
{
    printf("1..0 # SKIP the sanitizers' memory is not ours\n");
    return 0;
}

#else

enum { SLACK = 12 << 20 }; /* tables, checksums, a checkpoint's 1 MiB pieces, the allocator */

static const char job_text[] =
    "[job]\nmax_steps = 10\noutput_dir = %s\n"
    "[model]\ntype = gpt2\nn_layer = 8\nn_head = 8\nn_embd = 512\nblock_size = 16\n"
    "[data]\ntype = text\npath = jobs/data/pride_and_prejudice.txt\nbatch_size = 1\n"
    "[strategy]\ndistributed_type = FSDP\nmixed_precision = %s\n"
    "[optimizer]\ntype = SGD\n";

/* Begin a new peak; false where the kernel has no such thing. */
static bool forget_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, "5", 1) == 1;
    if (fd >= 0)
        close(fd);
    return done;
}

/* Open the run; the bytes that this took at its peak. */
static int64_t open_run(struct train_run *t, struct comm *c, const char *ini, struct ckpt *from)
{
    struct memory_use before = memory_use_now();
    CHECK(forget_peak());
    train_open(t, c, ini, from);
    struct memory_use now = memory_use_now();
    return now.peak - now.file - now.shmem - before.anon;
}

static void check_peak(const struct train_run *t, int64_t peak)
{
    const struct plan *p = t->run.plan;
    int64_t unit = 0, own = plan_own_elems(p, t->run.comm->rank);
    for (int u = 0; u < p->n_units; u++)
        unit = p->unit[u].n_elem > unit ? p->unit[u].n_elem : unit;
    int64_t most = (own + unit) * 4 + SLACK;
    CHECK(most < p->n_elem * 4 / 3 * 2); /* a whole model would be seen */
    check_that(peak <= most, __FILE__, __LINE__, "%lld bytes, part, unit and slack are %lld",
               (long long)peak, (long long)most);
}

int main(void)
{
    struct comm *c;
    struct train_run t;
    char folder[256], ini[2048];
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    train_folder(c, folder, sizeof folder);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        snprintf(ini, sizeof ini, job_text, folder, bf16 ? "bf16" : "no");
        TEST (bf16 ? "bf16: first weights in a part and a unit"
                   : "first weights in a part and a unit") {
            int64_t peak = open_run(&t, c, ini, NULL);
            check_peak(&t, peak);
        }
        if (!bf16)
            train_must(train_save(&t, CKPT_FULL));
        train_close(&t);
        TEST (bf16 ? "bf16: loaded in a part and a unit" : "loaded in a part and a unit") {
            struct arena *a = arena_create();
            const char *dir;
            struct ckpt *k;
            train_must(ckpt_find(folder, a, &dir));
            train_must(ckpt_open(dir, &k));
            int64_t peak = open_run(&t, c, ini, k);
            check_peak(&t, peak);
            train_close(&t);
            arena_destroy(&a);
        }
    }
    return train_end(&c, folder);
}

#endif
