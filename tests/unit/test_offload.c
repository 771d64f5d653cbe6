/* Arrays on disk: streaming in any number of tiles, pointers to the same values, no name left, by
 * every way to read and write that this machine has.
 * RUN: -n 1 */
#include "check.h"
#include "parallel/offload.h"

#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N = 5 * 1024, N_ARRAYS = 3 };

struct seen {
    int64_t n_elem, n_tiles;
    bool in_order;
};

/* a += b, c = the tile's own number */
static void combine(void *arg, const struct offload_tile *t, float *const *v)
{
    struct seen *s = arg;
    s->in_order &= t->begin == s->n_elem;
    for (int64_t i = 0; i < t->n; i++) {
        v[0][i] += v[1][i];
        v[2][i] = (float)t->row;
    }
    s->n_elem += t->n;
    s->n_tiles++;
}

static int64_t cut(struct offload_tile *tile, int64_t size)
{
    int64_t n = 0;
    for (int64_t at = 0; at < N; at += size, n++)
        tile[n] = (struct offload_tile){
            .begin = at, .n = N - at < size ? N - at : size, .row = (int64_t)n};
    return n;
}

static void test_stream(const struct offload_conf *base, int64_t size, bool ahead, bool behind)
{
    struct offload_conf conf = *base;
    conf.tile_elems = size;
    conf.read_ahead = ahead;
    conf.write_behind = behind;
    const int64_t elems[N_ARRAYS] = {N, N, N};
    struct offload_tile *tile = calloc(N, sizeof *tile);
    struct offload *o;
    struct seen seen = {.in_order = true};
    REQUIRE(tile && offload_create(&conf, N_ARRAYS, elems, &o) == ERR_OK);
    float *a = offload_array(o, 0), *b = offload_array(o, 1), *c = offload_array(o, 2);
    bool zero = true;
    for (int64_t i = 0; i < N; i++) {
        zero &= a[i] == 0 && b[i] == 0 && c[i] == 0;
        a[i] = (float)i;
        b[i] = 0.5f;
    }
    CHECK(zero);
    offload_forget(o);
    int64_t n = cut(tile, size);
    for (int pass = 0; pass < 2; pass++) {
        seen.n_elem = 0;
        offload_stream(o, tile, n, combine, &seen);
    }
    CHECK(seen.in_order && seen.n_elem == N && seen.n_tiles == 2 * n);
    bool right = true;
    for (int64_t i = 0; i < N; i++)
        right &= a[i] == (float)i + 1 && b[i] == 0.5f && c[i] == (float)(i / size);
    CHECK(right);
    CHECK(offload_status(o) == ERR_OK);
    offload_destroy(&o);
    free(tile);
}

static int count_names(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* The descriptor of the one file that is open in dir. */
static int file_in(const char *dir)
{
    char name[64], path[4096];
    for (int fd = 0; fd < 256; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, path, sizeof path - 1);
        path[n > 0 ? n : 0] = 0;
        if (strstr(path, dir))
            return fd;
    }
    return -1;
}

/* Why the method is not to be had here, or NULL. */
static const char *refused(struct offload_conf conf)
{
    const int64_t elems[] = {N};
    struct offload *o = NULL;
    conf.tile_elems = 1024;
    if (offload_create(&conf, 1, elems, &o) != ERR_OK)
        return err_text();
    struct text t = {0};
    offload_describe(o, &t);
    printf("# %s\n", t.s);
    CHECK(strstr(t.s, conf.io_method) && !strchr(t.s, '('));
    text_clear(&t);
    offload_destroy(&o);
    return NULL;
}

static void add_one(void *arg, const struct offload_tile *t, float *const *v)
{
    (void)arg;
    for (int64_t i = 0; i < t->n; i++)
        v[0][i] += 1;
}

/* Stream over a file that ends early, or that may not grow beyond a limit. */
static void test_failure(const struct offload_conf *base, bool write)
{
    const int64_t elems[] = {N};
    struct offload_conf conf = *base;
    struct offload_tile tile[N];
    struct offload *o;
    struct rlimit old, small;
    conf.tile_elems = 4096; /* one block, of which half is done when the disk fails */
    conf.block_bytes = 4 * OFFLOAD_ALIGN;
    conf.read_ahead = conf.write_behind = true;
    REQUIRE(offload_create(&conf, 1, elems, &o) == ERR_OK);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = (struct rlimit){2048 * sizeof(float), old.rlim_max};
    if (write)
        REQUIRE(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &small) == 0);
    else
        REQUIRE(ftruncate(file_in(conf.dir), 2048 * sizeof(float) + 100) == 0);
    offload_stream(o, tile, cut(tile, 4096), add_one, NULL);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK(offload_status(o) == ERR_RESOURCE);
    CHECK(strstr(err_text(), write ? "cannot write build/offload-" : "is truncated") != NULL);
    offload_destroy(&o);
}

static void test_method(const char *dir, const char *method)
{
    static const int64_t sizes[] = {N, 2048, 1024, 1000, 7};
    static const int depths[] = {1, 2, 32};
    const struct offload_conf base = {.dir = dir,
                                      .io_method = method,
                                      .block_bytes = OFFLOAD_ALIGN,
                                      .queue_depth = 8,
                                      .overlap_events = true};
    char name[256];
    const char *why = refused(base);
    bool skip = why && strcmp(method, "thread") != 0;
    snprintf(name, sizeof name, "%s: this machine has it%s%.180s", method, skip ? " # SKIP " : "",
             skip ? why : "");
    TEST (name) {
        CHECK(!why || skip);
    }
    if (skip)
        return;
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        struct offload_conf conf = base;
        conf.queue_depth = depths[d];
        snprintf(name, sizeof name, "%s, depth %d: tiles of any size, with and without overlap",
                 method, conf.queue_depth);
        TEST (name) {
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                for (int mode = 0; mode < 16; mode++) {
                    conf.single_submit = mode & 4;
                    conf.overlap_events = mode & 8;
                    test_stream(&conf, sizes[i], mode & 1, mode & 2);
                }
        }
    }
    for (int write = 0; write < 2; write++) {
        snprintf(name, sizeof name, "%s: a disk that fails to %s", method,
                 write ? "write" : "read");
        TEST (name) {
            test_failure(&base, write);
        }
    }
}

/* As in a container: from now on this process may have no ring. */
static bool forbid_rings(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static void test_refusal(const char *dir)
{
    const int64_t elems[] = {N};
    struct offload_conf conf = {
        .dir = dir, .tile_elems = 1024, .block_bytes = OFFLOAD_ALIGN, .queue_depth = 1};
    struct offload *o = NULL;
    struct text t = {0};
    REQUIRE(offload_create(&conf, 1, elems, &o) == ERR_OK);
    offload_describe(o, &t);
    CHECK(strstr(t.s, "a thread, through the page cache (io_uring: Operation not permitted)") ||
          strstr(t.s, "a thread, through the page cache (built without liburing)"));
    text_clear(&t);
    offload_destroy(&o);
    conf.io_method = "io_uring";
    CHECK(offload_create(&conf, 1, elems, &o) == ERR_RESOURCE && !o);
    CHECK(strstr(err_text(), "aio.io_method = io_uring: ") != NULL);
}

int main(void)
{
    char dir[] = "build/offload-XXXXXX";
    REQUIRE(mkdtemp(dir));
    for (int i = 1; offload_methods[i]; i++)
        test_method(dir, offload_methods[i]);
    TEST ("auto has a method, and says it") {
        const int64_t elems[] = {N};
        const struct offload_conf conf = {
            .dir = dir, .tile_elems = 1024, .block_bytes = OFFLOAD_ALIGN, .queue_depth = 1};
        struct offload *o;
        struct text t = {0};
        REQUIRE(offload_create(&conf, 1, elems, &o) == ERR_OK);
        offload_describe(o, &t);
        CHECK(strstr(t.s, "a thread, through the page cache (") == t.s ||
              strstr(t.s, "io_uring, ") == t.s);
        text_clear(&t);
        offload_destroy(&o);
    }
    TEST ("a method that nobody knows") {
        struct offload *o = NULL;
        const int64_t elems[] = {N};
        const struct offload_conf conf = {.dir = dir, .tile_elems = 1024, .io_method = "smoke"};
        CHECK(offload_create(&conf, 1, elems, &o) == ERR_RESOURCE && !o);
        CHECK(strstr(err_text(), "aio.io_method = smoke") != NULL);
    }
    bool may = forbid_rings();
    TEST (may ? "no io_uring: auto says why, who asks for it gets an error"
              : "no io_uring # SKIP no right to forbid it") {
        if (may)
            test_refusal(dir);
    }
    TEST ("no name is left in the folder") {
        CHECK(count_names(dir) == 2);
    }
    TEST ("a folder that is not there") {
        struct offload *o = NULL;
        const int64_t elems[] = {N};
        const struct offload_conf conf = {.dir = "build/no such folder", .tile_elems = 1024};
        CHECK(offload_create(&conf, 1, elems, &o) == ERR_RESOURCE && !o);
        CHECK(strstr(err_text(), "nvme_path = build/no such folder") != NULL);
    }
    rmdir(dir);
    return check_done();
}
