/* The base: arena, stack, text, hash, random numbers, files, errors.  Expected values are published
 * vectors or come from a slower, plainer computation here. */
/* RUN: -n 1 */
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/rng_normal.h"
#include "base/text.h"
#include "check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_arena(void)
{
    TEST ("arena memory is zeroed, aligned and does not overlap") {
        struct arena *a = arena_create();
        enum { N = 400 };
        unsigned char *p[N];
        size_t n_bytes[N];
        for (int i = 0; i < N; i++) {
            n_bytes[i] = (size_t)(i * 37 % 1000) + (i % 50 == 0 ? 200000 : 0);
            p[i] = arena_alloc(a, n_bytes[i]);
            CHECK((uintptr_t)p[i] % 64 == 0);
            for (size_t k = 0; k < n_bytes[i]; k++)
                if (p[i][k] != 0) {
                    CHECK(p[i][k] == 0);
                    break;
                }
            memset(p[i], i % 251 + 1, n_bytes[i]);
        }
        bool intact = true;
        for (int i = 0; i < N; i++)
            for (size_t k = 0; k < n_bytes[i]; k++)
                intact = intact && p[i][k] == i % 251 + 1;
        CHECK(intact);
        CHECK_STR(arena_strdup(a, "a b"), "a b");
        CHECK_STR(arena_strndup(a, "abcdef", 3), "abc");
        CHECK_STR(arena_printf(a, "%d-%s", 12, "x"), "12-x");
        arena_destroy(&a);
        CHECK(a == NULL);
        arena_destroy(&a);
    }
    TEST ("a stack in two blocks: what would reach across the end of the first begins the second") {
        static char one[256], two[512];
        struct stack real, count;
        stack_init(&real, one, sizeof one);
        stack_extend(&real, sizeof one, two, sizeof two);
        stack_init_counting(&count);
        stack_extend(&count, sizeof one, NULL, sizeof two);
        for (int again = 0; again < 2; again++) {
            CHECK(stack_push(&real, 100) == one && stack_push(&count, 100) != NULL);
            size_t mark = stack_mark(&real);
            CHECK(stack_push(&real, 129) == two && stack_push(&count, 129) != NULL);
            CHECK(stack_push(&real, 64) == two + 192 && stack_push(&count, 64) != NULL);
            CHECK(real.top == sizeof one + 256 && real.peak == count.peak);
            stack_release(&real, mark);
            stack_release(&count, mark);
            CHECK(stack_push(&real, 128) == one + 128); /* up to the end, but not across it */
            CHECK(stack_push(&real, 512) == two && real.top == real.n_bytes);
            stack_release(&real, 0);
            stack_release(&count, 0);
            count.peak = real.peak = 0;
        }
    }
    TEST ("a counting stack peaks where the real one does") {
        static char memory[8192] __attribute__((aligned(64)));
        struct stack real, count;
        stack_init(&real, memory, sizeof memory);
        stack_init_counting(&count);
        struct stack *both[] = {&real, &count};
        for (int i = 0; i < 2; i++) {
            struct stack *s = both[i];
            void *first = stack_push(s, 100);
            CHECK(first != NULL);
            size_t mark = stack_mark(s);
            void *second = stack_push(s, 1000);
            stack_release(s, mark);
            CHECK(stack_push(s, 64) == second);
            CHECK(stack_push(s, 1) != NULL);
        }
        /* 100 → 128, 1000 → 1024; after the release 128 + 64 + 64 */
        CHECK(real.peak == 1152 && count.peak == 1152);
        CHECK(real.top == 256 && count.top == 256);
    }
}

/* Optimal string alignment, straight from its recurrence. */
static int plain_distance(const char *a, int n_a, const char *b, int n_b)
{
    if (n_a == 0 || n_b == 0)
        return n_a + n_b;
    int best = plain_distance(a, n_a - 1, b, n_b) + 1;
    int d = plain_distance(a, n_a, b, n_b - 1) + 1;
    best = d < best ? d : best;
    d = plain_distance(a, n_a - 1, b, n_b - 1) + (a[n_a - 1] != b[n_b - 1]);
    best = d < best ? d : best;
    if (n_a > 1 && n_b > 1 && a[n_a - 1] == b[n_b - 2] && a[n_a - 2] == b[n_b - 1]) {
        d = plain_distance(a, n_a - 2, b, n_b - 2) + 1;
        best = d < best ? d : best;
    }
    return best;
}

static void test_text(void)
{
    TEST ("text grows and is always a string") {
        struct text t = {0};
        for (int i = 0; i < 1000; i++)
            text_printf(&t, "%d,", i);
        /* 10 of one digit, 90 of two, 900 of three, and a comma each */
        CHECK(t.n_bytes == 10 + 180 + 2700 + 1000);
        CHECK(strlen(t.s) == t.n_bytes);
        text_add(&t, "", 0);
        CHECK(strcmp(t.s + t.n_bytes - 4, "999,") == 0);
        text_clear(&t);
        CHECK(t.s == NULL);
        text_json_string(&t, "a\"b\\c\n\x7f\xC3\xA9");
        CHECK_STR(t.s, "\"a\\\"b\\\\c\\u000a\\u007f\xC3\xA9\"");
        text_clear(&t);
    }
    TEST ("edit distance equals the plain recurrence") {
        struct rng_key key = rng_key_make(1, 2);
        for (uint64_t i = 0; i < 400; i++) {
            char a[8] = {0}, b[8] = {0};
            int n_a = (int)(7 * rng_uniform(key, 100 * i));
            int n_b = (int)(7 * rng_uniform(key, 100 * i + 1));
            for (int k = 0; k < n_a; k++)
                a[k] = (char)('a' + (int)(3 * rng_uniform(key, 100 * i + 2 + (uint64_t)k)));
            for (int k = 0; k < n_b; k++)
                b[k] = (char)('a' + (int)(3 * rng_uniform(key, 100 * i + 20 + (uint64_t)k)));
            int d = plain_distance(a, n_a, b, n_b);
            CHECK(text_distance(a, b, 20) == d);
            CHECK(text_distance(a, b, 2) == (d <= 2 ? d : 3));
        }
        CHECK(text_distance("MODEL", "model", 3) == 0);
    }
    TEST ("nearest spelling, or none") {
        static const char *const words[] = {"model", "data", "optimizer", "scheduler", NULL};
        CHECK_STR(text_nearest("modle", words), "model");
        CHECK_STR(text_nearest("Optimiser", words), "optimizer");
        CHECK_STR(text_nearest("scheduller", words), "scheduler");
        CHECK(text_nearest("xyzzy", words) == NULL);
        CHECK(text_same("AdamW", "adamw") && !text_same("adam", "adamw") &&
              !text_same("adamw", "adam"));
    }
    TEST ("sizes and durations for people") {
        char buf[32];
        CHECK_STR(text_bytes(buf, 0), "0 B");
        CHECK_STR(text_bytes(buf, 1023), "1023 B");
        CHECK_STR(text_bytes(buf, 1.5 * 1024 * 1024), "1.50 MiB");
        CHECK_STR(text_bytes(buf, 300.0 * 1024 * 1024 * 1024), "300 GiB");
        CHECK_STR(text_duration(buf, 0.4), "0:00");
        CHECK_STR(text_duration(buf, 125), "2:05");
        CHECK_STR(text_duration(buf, 3725), "1:02:05");
        CHECK_STR(text_duration(buf, -1), "?");
        CHECK_STR(text_duration(buf, (double)NAN), "?");
    }
}

static void test_hash(void)
{
    TEST ("XXH64 of the published inputs") {
        CHECK(hash64("", 0, 0) == 0xef46db3751d8e999u);
        CHECK(hash64("abc", 3, 0) == 0x44bc2cf5ad770999u);
        CHECK(hash64("xxhash", 6, 0) == 0x32dd38952c4bc720u);
        CHECK(hash64("xxhash", 6, 20141025) == 0xb559b98d844e0635u);
        /* longer than a stripe of 32 bytes */
        CHECK(hash64_string("Nobody inspects the spammish repetition") == 0xfbcea83c8a378bf1u);
    }
    TEST ("the hash does not depend on where the bytes lie, and each byte counts") {
        char bytes[200], moved[208];
        for (int i = 0; i < 200; i++)
            bytes[i] = (char)(i * 7);
        uint64_t h = hash64(bytes, 150, 9);
        for (int shift = 0; shift < 8; shift++) {
            memcpy(moved + shift, bytes, 150);
            CHECK(hash64(moved + shift, 150, 9) == h);
        }
        for (int i = 0; i < 150; i++) {
            bytes[i] ^= 1;
            CHECK(hash64(bytes, 150, 9) != h);
            bytes[i] ^= 1;
        }
    }
}

/* Philox 4x32-10's known answers, as its authors publish them with their library. */
static void test_rng_answers(void)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } row[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    TEST ("Philox 4x32-10 gives its published answers")
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
            const uint32_t *c = row[i].counter;
            uint32_t out[4];
            rng_block((struct rng_key){{row[i].key[0], row[i].key[1]}}, (uint64_t)c[3] << 32 | c[2],
                      (uint64_t)c[1] << 32 | c[0], out);
            for (int k = 0; k < 4; k++)
                CHECK(out[k] == row[i].out[k]);
        }
}

/* Radius and angle in fp64, from the same two words. */
static double normal_error(uint32_t w0, uint32_t w1)
{
    float z0, z1;
    rng_normal_pair(w0, w1, &z0, &z1);
    double low = ((double)w0 + 0.5) * 0x1p-32, high = (4294967295.0 - w0 + 0.5) * 0x1p-32;
    double r = sqrt(-2 * (low < 0.5 ? log(low) : log1p(-high)));
    double t = 6.283185307179586476925286766559 * w1 * 0x1p-32;
    return fmax(fabs(z0 - r * cos(t)), fabs(z1 - r * sin(t)));
}

static void test_rng_normal(void)
{
    struct rng_key key = rng_key_make(2, 2);
    TEST ("normal numbers are Box and Muller's to 1e-6, at both ends too") {
        double most = 0;
        for (uint32_t i = 0; i < 100000; i++) {
            uint32_t w[4];
            rng_block(key, 0, i, w);
            most = fmax(most, normal_error(w[0], w[1]));
            most = fmax(most, normal_error(i, w[2]));
            most = fmax(most, normal_error(UINT32_MAX - i, w[2]));
            most = fmax(most, normal_error(w[2], (i << 29) + i / 8 - 1));
        }
        CHECK_NEAR(most, 0, 1e-6);
    }
}

static void test_rng_ranges(void)
{
    enum { N = 1000 };
    static float whole[N], cut[N];
    struct rng_key key = rng_key_make(1337, hash64_string("block.3.attn.qkv.weight"));
    TEST ("random ranges are equal however they are cut")
        for (int normal = 0; normal < 2; normal++) {
            void (*fill)(struct rng_key, int64_t, int64_t, float, float, float *) =
                normal ? rng_fill_normal : rng_fill_uniform;
            fill(key, 1000003, N, -1, 2, whole);
            for (int step = 1; step < 20; step += 3) {
                memset(cut, 0, sizeof cut);
                for (int64_t at = 0; at < N; at += step)
                    fill(key, 1000003 + at, at + step <= N ? step : N - at, -1, 2, cut + at);
                CHECK(memcmp(whole, cut, sizeof whole) == 0);
            }
        }
    TEST ("uniform and normal numbers have their moments; keys give different streams") {
        enum { MANY = 200000 };
        float *v = malloc(MANY * sizeof *v);
        CHECK(v != NULL);
        rng_fill_normal(key, 0, MANY, 3, 0.5f, v);
        double sum = 0, squares = 0;
        for (int i = 0; i < MANY; i++) {
            sum += v[i];
            squares += (v[i] - 3.0) * (v[i] - 3.0);
        }
        CHECK_NEAR(sum / MANY, 3, 5 * 0.5 / sqrt(MANY));
        CHECK_NEAR(squares / MANY, 0.25, 5 * 0.25 * sqrt(2.0 / MANY));
        rng_fill_uniform(key, 0, MANY, -1, 2, v);
        sum = 0;
        bool inside = true;
        for (int i = 0; i < MANY; i++) {
            sum += v[i];
            inside = inside && v[i] >= -1 && v[i] <= 2;
        }
        CHECK(inside);
        CHECK_NEAR(sum / MANY, 0.5, 5 * 3 / sqrt(12.0 * MANY));
        free(v);
        float a[4], b[4];
        rng_fill_uniform(rng_key_make(1337, 1), 0, 4, 0, 1, a);
        rng_fill_uniform(rng_key_make(1338, 1), 0, 4, 0, 1, b);
        CHECK(memcmp(a, b, sizeof a) != 0);
        rng_fill_uniform(rng_key_make(1337, 2), 0, 4, 0, 1, b);
        CHECK(memcmp(a, b, sizeof a) != 0);
        for (uint64_t i = 0; i < 1000; i++)
            CHECK(rng_uniform(key, i) >= 0 && rng_uniform(key, i) < 1);
    }
}

static void test_files(const char *dir)
{
    char path[512], link_path[512], sub[512];
    snprintf(path, sizeof path, "%s/a", dir);
    snprintf(link_path, sizeof link_path, "%s/x/link", dir);
    snprintf(sub, sizeof sub, "%s/x/y/z", dir);
    char *bytes = NULL;
    size_t n = 0;
    TEST ("a file's bytes come back, with a NUL behind them") {
        CHECK(file_write(path, "a\0bc", 4) == ERR_OK);
        CHECK(file_read(path, 4, ERR_DATA, &bytes, &n) == ERR_OK);
        CHECK(n == 4 && memcmp(bytes, "a\0bc", 5) == 0);
        free(bytes);
        CHECK(file_write(path, "", 0) == ERR_OK);
        CHECK(file_read(path, 0, ERR_DATA, &bytes, &n) == ERR_OK);
        CHECK(n == 0 && bytes[0] == 0);
        free(bytes);
    }
    TEST ("what cannot be read is refused with the caller's status and the path") {
        CHECK(file_write(path, "12345", 5) == ERR_OK);
        CHECK(file_read(path, 4, ERR_USAGE, &bytes, &n) == ERR_USAGE);
        CHECK_HAS(err_text(), "/a is too large: 5 bytes, at most 4");
        CHECK(file_read(dir, 4, ERR_DATA, &bytes, &n) == ERR_DATA);
        CHECK_HAS(err_text(), "is not a regular file");
        CHECK(file_read(sub, 4, ERR_DATA, &bytes, &n) == ERR_DATA);
        CHECK_HAS(err_text(), "x/y/z: No such file");
    }
    TEST ("folders are made in one go and removed without following links") {
        CHECK(file_make_dirs(sub) == ERR_OK);
        CHECK(file_make_dirs(sub) == ERR_OK);
        CHECK(file_sync_dir(sub) == ERR_OK);
        CHECK(symlink(path, link_path) == 0);
        snprintf(sub, sizeof sub, "%s/x", dir);
        CHECK(file_remove_tree(sub) == ERR_OK);
        struct stat st;
        CHECK(lstat(sub, &st) != 0);
        CHECK(stat(path, &st) == 0);
        CHECK(file_remove_tree(sub) == ERR_OK);
        snprintf(sub, sizeof sub, "%s/a/b", dir);
        CHECK(file_make_dirs(sub) == ERR_RESOURCE);
    }
    TEST ("positions are honoured, and the end of the file is an error") {
        FILE *f = fopen(path, "w+");
        CHECK(f != NULL);
        int fd = fileno(f);
        char got[4] = {0};
        CHECK(file_pwrite_fd(fd, path, "xyz", 3, 5) == ERR_OK);
        CHECK(file_write_fd(fd, path, "ab", 2) == ERR_OK);
        CHECK(file_pread_fd(fd, path, got, 3, 5) == ERR_OK && memcmp(got, "xyz", 3) == 0);
        CHECK(file_pread_fd(fd, path, got, 4, 0) == ERR_OK && memcmp(got, "ab\0", 4) == 0);
        CHECK(file_pread_fd(fd, path, got, 4, 5) == ERR_DATA);
        CHECK_HAS(err_text(), "ends at byte 8");
        fclose(f);
    }
}

static void test_errors(void)
{
    TEST ("an error is one line, cut to fit, with prefixes in front") {
        CHECK(err_set(ERR_DATA, "a\nb\t%d", 3) == ERR_DATA);
        CHECK_STR(err_text(), "a b 3");
        err_prefix("in %s", "x");
        CHECK_STR(err_text(), "in x: a b 3");
        char large[4000];
        memset(large, 'y', sizeof large - 1);
        large[sizeof large - 1] = 0;
        err_set(ERR_DATA, "%s", large);
        CHECK(strlen(err_text()) == ERR_TEXT_BYTES - 1);
        err_prefix("head");
        CHECK(strncmp(err_text(), "head: yyy", 9) == 0);
        CHECK(strlen(err_text()) == ERR_TEXT_BYTES - 1);
    }
    TEST ("the clock goes forward") {
        double t = clock_now_s();
        usleep(2000);
        CHECK(clock_now_s() - t >= 0.002);
    }
}

static void put_number(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK(file_make_dirs(dir) == ERR_OK);
    CHECK(file_write(path, text, strlen(text)) == ERR_OK);
}

/* Folders as the kernel's control groups look, of both generations. */
static void test_groups(void)
{
    char root[] = "/tmp/stretto-groups-XXXXXX", dir[128];
    CHECK(mkdtemp(root));
    CHECK(memory_left_in_groups(root, "0::/job/step\n") == INT64_MAX);
    snprintf(dir, sizeof dir, "%s/job/step", root);
    put_number(dir, "memory.max", "max\n");
    put_number(dir, "memory.current", "500\n");
    CHECK(memory_left_in_groups(root, "0::/job/step\n") == INT64_MAX);
    snprintf(dir, sizeof dir, "%s/job", root);
    put_number(dir, "memory.max", "1000\n");
    put_number(dir, "memory.current", "900\n");
    CHECK(memory_left_in_groups(root, "1:name=systemd:/x\n0::/job/step\n") == 100);
    put_number(dir, "memory.stat", "anon 300\nfile 600\ninactive_file 250\nactive_file 350\n");
    CHECK(memory_left_in_groups(root, "0::/job/step\n") == 700);
    CHECK(memory_left_in_groups(root, "0::/other\n") == INT64_MAX);
    put_number(dir, "memory.current", "1700\n");
    CHECK(memory_left_in_groups(root, "0::/job/step\n") == 0);
    snprintf(dir, sizeof dir, "%s/memory/slurm", root);
    put_number(dir, "memory.limit_in_bytes", "64\n");
    put_number(dir, "memory.usage_in_bytes", "60\n");
    put_number(dir, "memory.stat",
               "inactive_file 9\nactive_file 9\ntotal_inactive_file 20\ntotal_active_file 30\n");
    CHECK(memory_left_in_groups(root, "9:memory:/slurm/job_7\n0::/\n") == 54);
    CHECK(memory_available() > 0 && memory_most() >= memory_available());
    CHECK(file_remove_tree(root) == ERR_OK);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char dir[256];
    snprintf(dir, sizeof dir, "%s/stretto-base-XXXXXX", tmp ? tmp : "/tmp");
    test_arena();
    test_text();
    test_hash();
    test_rng_answers();
    test_rng_normal();
    test_rng_ranges();
    if (!mkdtemp(dir))
        return 1;
    test_files(dir);
    test_errors();
    if (file_remove_tree(dir) != ERR_OK)
        return 1;
    TEST ("what control groups leave of the memory")
        test_groups();
    return check_done();
}
