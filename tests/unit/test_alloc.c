/* Nothing of ours allocates inside a step: calls of malloc and its kin are counted by who makes
 * them, this program's own code (all of src is linked into it) or a library.
 * RUN: -n 1
 * RUN: -n 2 */
#include "train_run.h"

#include <errno.h>

/* The sanitizers bring a malloc of their own, which knows nothing of ours. */
#ifdef __SANITIZE_ADDRESS__

int main(void)
{
    printf("1..0 # SKIP the sanitizers' malloc cannot be counted\n");
    return 0;
}

#else

extern char __executable_start, etext;

static bool counting;
static int n_ours;

static void count(const void *caller)
{
    const char *at = caller;
    if (counting && at >= &__executable_start && at < &etext)
        n_ours++;
}

void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n, size_t item_bytes);
void *__libc_realloc(void *p, size_t n_bytes);
void *__libc_memalign(size_t alignment, size_t n_bytes);

void *malloc(size_t n_bytes)
{
    count(__builtin_return_address(0));
    return __libc_malloc(n_bytes);
}

void *calloc(size_t n, size_t item_bytes)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, item_bytes);
}

void *realloc(void *p, size_t n_bytes)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, n_bytes);
}

int posix_memalign(void **p, size_t alignment, size_t n_bytes)
{
    count(__builtin_return_address(0));
    *p = __libc_memalign(alignment, n_bytes);
    return *p ? 0 : ENOMEM;
}

static const char gpt_job[] =
    "[job]\nmax_steps = 100\n[model]\ntype = gpt2\nn_layer = 2\nn_head = 2\nn_embd = 32\n"
    "block_size = 16\ndropout = 0.1\n[data]\ntype = text\n"
    "path = jobs/data/pride_and_prejudice.txt\nbatch_size = 2\n"
    "[strategy]\ngradient_accumulation_steps = 2\ngradient_clipping = 1\nsync_each_batch = %s\n"
    "mixed_precision = no\n";

static const char mlp_job[] = "[job]\nmax_steps = 100\n[model]\ntype = mlp\nhidden = 16\n[data]\n"
                              "type = csv\npath = jobs/data/digits.csv.gz\nbatch_size = 8\n"
                              "[optimizer]\ntype = SGD\nmomentum = 0.9\n";

static void test_job(struct comm *c, const char *ini)
{
    struct train_run t;
    struct eval_report v;
    train_open(&t, c, ini, NULL);
    for (int i = 0; i < 2; i++)
        train_step(&t);
    engine_eval(t.engine, 2, &v);
    counting = true;
    for (int i = 0; i < 3; i++)
        train_step(&t);
    engine_eval(t.engine, 2, &v);
    counting = false;
    CHECK(n_ours == 0);
    n_ours = 0;
    train_close(&t);
}

int main(void)
{
    struct comm *c;
    char ini[1024];
    train_must(comm_open_world(&c));
    check_rank = c->rank;
    TEST ("the count counts") {
        counting = true;
        struct arena *a = arena_create();
        counting = false;
        arena_destroy(&a);
        CHECK(n_ours == 1);
        n_ours = 0;
    }
    for (int sync = 0; sync < 2; sync++) {
        snprintf(ini, sizeof ini, gpt_job, sync ? "true" : "false");
        TEST (sync ? "steps of gpt2 that sum at each micro-batch allocate nothing"
                   : "steps and evaluations of gpt2 allocate nothing") {
            test_job(c, ini);
        }
    }
    TEST ("steps of mlp allocate nothing") {
        test_job(c, mlp_job);
    }
    int rc = check_done();
    comm_close(&c);
    return rc;
}

#endif
