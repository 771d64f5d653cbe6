/* Arrays on disk: streaming in any number of tiles, pointers to the same values, no name left.
 * RUN: -n 1 */
#include "check.h"
#include "parallel/offload.h"

#include <dirent.h>
#include <stdlib.h>
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

static void test_stream(const char *dir, int64_t size, bool ahead, bool behind)
{
    const struct offload_conf conf = {
        .dir = dir, .tile_elems = size, .read_ahead = ahead, .write_behind = behind};
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

int main(void)
{
    char dir[] = "build/offload-XXXXXX";
    REQUIRE(mkdtemp(dir));
    TEST ("tiles of any size, with and without overlap, write what was computed on them") {
        static const int64_t sizes[] = {N, 2048, 1024, 1000, 7};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int mode = 0; mode < 4; mode++)
                test_stream(dir, sizes[i], mode & 1, mode & 2);
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
