/* Anybody's HDF5 file: read by place, and damaged at random, refused or harmless.
 * RUN: -n 1 */
#include "ckpt_fixture.h"

#include "base/rng.h"
#include "ckpt/source.h"
#include <fcntl.h>

static void put(const char *path, const char *bytes, size_t n)
{
    if (file_write(path, bytes, n) != ERR_OK)
        FATAL("%s", err_text());
}

/* Every array that can be read; whether the values are those of the fixture. */
static bool read_all(const struct source *s, int seed)
{
    bool right = true;
    for (int i = 0; i < s->n_arrays; i++) {
        const struct ckpt_array *x = &s->arrays[i];
        if (x->dtype == DTYPE_COUNT || array_bytes(x) > 4 << 20)
            continue;
        int k = 0;
        while (k < N_ARRAYS && (strcmp(large_arrays[k].group, x->group) != 0 ||
                                strcmp(large_arrays[k].name, x->name) != 0))
            k++;
        char *got = malloc(array_bytes(x)), *want = k < N_ARRAYS ? make_values(x, k, seed) : NULL;
        right = source_read(s, i, 0, shape_elems(&x->shape), got) == ERR_OK && want &&
                memcmp(got, want, array_bytes(x)) == 0 && right;
        free(got);
        free(want);
    }
    return right;
}

static void test_whole(const char *path)
{
    TEST ("every dtype by its place, with layout and alias") {
        struct source *s;
        CHECK(source_open(path, &s) == ERR_OK);
        CHECK(s && s->n_arrays == N_ARRAYS && read_all(s, 3));
        for (int k = 0; s && k < N_ARRAYS; k++) {
            int i = source_find(s, large_arrays[k].group, large_arrays[k].name);
            CHECK(i >= 0 && s->arrays[i].dtype == large_arrays[k].dtype &&
                  shape_equal(&s->arrays[i].shape, &large_arrays[k].shape));
            if (i >= 0 && large_arrays[k].layout)
                CHECK_STR(s->arrays[i].layout, large_arrays[k].layout);
        }
        source_close(&s);
    }
}

/* Bits of the first pages, which are HDF5's own for the most part, and of anywhere. */
static void test_damage(const char *path, const char *bytes, size_t n_bytes)
{
    enum { TRIES = 200, PAGES = 16 << 10 };
    TEST ("damaged at random: refused or harmless, and never the end of this process") {
        struct rng_key key = rng_key_make(1, 2);
        struct source *s;
        int n_refused = 0, n_harmless = 0, fd = open(path, O_WRONLY | O_CLOEXEC);
        for (uint32_t t = 0; t < TRIES; t++) {
            uint32_t x[4];
            rng_block(key, 0, t, x);
            size_t at = x[0] % (t % 2 ? PAGES : n_bytes);
            while (t % 2 && !bytes[at]) /* the pages are mostly empty */
                at = (at + 1) % PAGES;
            char bad = (char)(bytes[at] ^ (int)(1 + x[1] % 255));
            CHECK(pwrite(fd, &bad, 1, (off_t)at) == 1);
            int rc = source_open(path, &s);
            CHECK(rc == ERR_OK || rc == ERR_DATA);
            if (rc == ERR_OK)
                (void)read_all(s, 3);
            *(rc == ERR_OK ? &n_harmless : &n_refused) += 1;
            source_close(&s);
            CHECK(pwrite(fd, bytes + at, 1, (off_t)at) == 1);
        }
        printf("# %d refused, %d not seen\n", n_refused, n_harmless);
        CHECK(n_refused > 0 && n_harmless > 0);
        CHECK(source_open(path, &s) == ERR_OK && read_all(s, 3));
        source_close(&s);
        for (size_t n = n_bytes - 1; n > 0; n /= 2) {
            CHECK(ftruncate(fd, (off_t)n) == 0);
            CHECK(source_open(path, &s) == ERR_DATA);
            source_close(&s);
        }
        close(fd);
    }
}

int main(void)
{
    char dir[MAX_PATH], file[MAX_PATH], path[MAX_PATH], *bytes;
    size_t n_bytes;
    struct comm *c = comm_self();
    scratch_make(c, dir);
    if (save_arrays(c, large_arrays, N_ARRAYS, dir, 1, "run", 0, 3) != ERR_OK ||
        file_read(join(file, dir, "step-00000001/full.h5"), 64 << 20, ERR_DATA, &bytes, &n_bytes) !=
            ERR_OK)
        FATAL("%s", err_text());
    put(join(path, dir, "lone.h5"), bytes, n_bytes);
    test_whole(path);
    test_damage(path, bytes, n_bytes);
    free(bytes);
    file_remove_tree(dir);
    comm_close(&c);
    return check_done();
}
