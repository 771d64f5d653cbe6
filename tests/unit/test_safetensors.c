/* safetensors and .bin files that lie: refused with the reason, never read beyond; and what is
 * written reads back to the same bits.
 * RUN: -n 1 */
#include "ckpt_fixture.h"

#include "ckpt/safetensors.h"
#include "ckpt/source.h"
#include <fcntl.h>

struct rig {
    char dir[MAX_PATH], file[MAX_PATH];
};

/* A file of this header and n_data bytes behind it. */
static void put(const char *path, const char *header, size_t n_header, size_t n_data)
{
    struct text t = {0};
    for (int i = 0; i < 8; i++) {
        char c = (char)((uint64_t)n_header >> 8 * i & 255);
        text_add(&t, &c, 1);
    }
    text_add(&t, header, strlen(header));
    for (size_t i = 0; i < n_data; i++)
        text_add(&t, &"abcdefgh"[i % 8], 1);
    if (file_write(path, t.s, t.n_bytes) != ERR_OK)
        FATAL("%s", err_text());
    text_clear(&t);
}

static void refused(const struct rig *r, const char *header, size_t n_data, const char *why)
{
    struct source *s;
    put(r->file, header, strlen(header), n_data);
    int rc = source_open(r->file, &s);
    check_that(rc == ERR_DATA, __FILE__, __LINE__, "%s: status %d", header, rc);
    CHECK_HAS(err_text(), why);
    source_close(&s);
}

#define T(offsets) "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": " offsets "}}"
#define TWO(x, y)                                                                                  \
    "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": " x "}, "                      \
    "\"b\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": " y "}}"

static void test_lies(const struct rig *r)
{
    TEST ("headers whose numbers lie") {
        struct source *s;
        put(r->file, T("[0, 8]"), strlen(T("[0, 8]")), 8);
        CHECK(source_open(r->file, &s) == ERR_OK);
        source_close(&s);
        refused(r, T("[0, 16]"), 8, "leave the 8 bytes");
        refused(r, T("[8, 16]"), 16, "belong to no tensor");
        refused(r, T("[0, 8]"), 9, "the values have 9");
        refused(r, T("[0, 4]"), 4, "are not the 4 bytes");
        refused(r, T("[8, 0]"), 8, "leave");
        refused(r, T("[-8, 0]"), 8, "leave");
        refused(r, T("[0, 9223372036854775808]"), 8, "64 bits");
        refused(r, T("[9223372036854775800, 9223372036854775807]"), 8, "leave");
        refused(r, T("[0, 8.0]"), 8, "64 bits");
        refused(r, T("[0]"), 8, "no two numbers");
        refused(r, TWO("[0, 8]", "[4, 12]"), 12, "overlap");
        refused(r, TWO("[0, 8]", "[0, 8]"), 8, "overlap");
        refused(r, TWO("[8, 16]", "[0, 8]"), 17, "the values have 17");
        put(r->file, TWO("[8, 16]", "[0, 8]"), strlen(TWO("[8, 16]", "[0, 8]")), 16);
        CHECK(source_open(r->file, &s) == ERR_OK); /* any order of names will do */
        source_close(&s);
    }
    TEST ("shapes and types that lie") {
#define SHAPED(t, shape)                                                                           \
    "{\"a\": {\"dtype\": " t ", \"shape\": " shape ", \"data_offsets\": [0, 8]}}"
        refused(r, SHAPED("\"F32\"", "[3]"), 8, "are not the 8 bytes");
        refused(r, SHAPED("\"F32\"", "[0]"), 8, "dimension 0 is 0");
        refused(r, SHAPED("\"F32\"", "[-2]"), 8, "dimension 0 is -2");
        refused(r, SHAPED("\"F32\"", "[4294967296, 4294967296]"), 8, "beyond 64 bits");
        refused(r, SHAPED("\"F32\"", "[9223372036854775807]"), 8, "are not the 8 bytes");
        refused(r, SHAPED("\"F32\"", "[1, 1, 1, 1, 2]"), 8, "at most 4");
        refused(r, SHAPED("\"F32\"", "2"), 8, "no list");
        refused(r, SHAPED("\"F33\"", "[2]"), 8, "unknown dtype");
        refused(r, SHAPED("7", "[2]"), 8, "not a string");
        refused(r, "[]", 0, "no JSON object");
        refused(r, "{}", 0, "no tensors");
        refused(r, "{\"a\": 1}", 0, "no object");
        refused(r, "{\"__metadata__\": {\"a\": 1}}", 0, "not a text");
    }
    TEST ("names that lie") {
#define NAMED(n) "{\"" n "\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}"
        refused(r, NAMED(".."), 8, "no name");
        refused(r, NAMED("../x"), 8, "no name");
        refused(r, NAMED("/etc/x"), 8, "no name");
        refused(r, NAMED(""), 8, "no name");
        refused(r, NAMED("a\\u0000b"), 8, "cannot hold");
        refused(r, NAMED("\xff"), 8, "UTF-8");
        refused(r, NAMED("\xed\xa0\x80"), 8, "UTF-8");
        refused(r,
                "{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}, "
                "\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 8]}}",
                8, "stands twice");
    }
}

static void test_lengths(const struct rig *r)
{
    TEST ("lengths of the header that lie, and files that end early") {
        const char *good = T("[0, 8]");
        const uint64_t n = strlen(good), lengths[] = {0,
                                                      1,
                                                      n - 1,
                                                      n + 1,
                                                      1000,
                                                      100000001,
                                                      UINT64_MAX,
                                                      UINT64_MAX - 7,
                                                      (uint64_t)1 << 63};
        struct source *s;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            put(r->file, good, (size_t)lengths[i], 8);
            check_that(source_open(r->file, &s) == ERR_DATA, __FILE__, __LINE__, "%llu",
                       (unsigned long long)lengths[i]);
            source_close(&s);
        }
        put(r->file, good, strlen(good), 8);
        for (int64_t left = (int64_t)n + 15; left >= 0; left--) {
            CHECK(truncate(r->file, left) == 0);
            CHECK(source_open(r->file, &s) == ERR_DATA);
            source_close(&s);
        }
    }
}

static void put_text(const struct rig *r, const char *name, const char *text)
{
    char path[MAX_PATH];
    if (file_write(join(path, r->dir, name), text, strlen(text)) != ERR_OK)
        FATAL("%s", err_text());
}

static void index_refused(const struct rig *r, const char *map, const char *why)
{
    struct source *s;
    char path[MAX_PATH];
    struct text t = {0};
    text_printf(&t, "{\"weight_map\": %s}", map);
    put_text(r, "m.safetensors.index.json", t.s);
    text_clear(&t);
    CHECK(source_open(join(path, r->dir, "m.safetensors.index.json"), &s) == ERR_DATA);
    CHECK_HAS(err_text(), why);
    source_close(&s);
}

static void test_index(const struct rig *r)
{
    TEST ("an index that lies") {
        char path[MAX_PATH];
        put(join(path, r->dir, "one.safetensors"), T("[0, 8]"), strlen(T("[0, 8]")), 8);
        put(join(path, r->dir, "two.safetensors"), T("[0, 8]"), strlen(T("[0, 8]")), 8);
        index_refused(r, "{}", "missing, empty");
        index_refused(r, "7", "no object");
        index_refused(r, "{\"a\": 7}", "in no file");
        index_refused(r, "{\"a\": \"../one.safetensors\"}", "no file beside the index");
        index_refused(r, "{\"a\": \"/one.safetensors\"}", "no file beside the index");
        index_refused(r, "{\"a\": \"..\"}", "no file beside the index");
        index_refused(r, "{\"a\": \"three.safetensors\"}", "cannot open");
        index_refused(r, "{\"b\": \"one.safetensors\"}", "does not know");
        index_refused(r, "{\"a\": \"one.safetensors\", \"b\": \"one.safetensors\"}",
                      "does not hold it");
        index_refused(r, "{\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}",
                      "places in one.safetensors");
    }
}

/* A header of int32 and nothing behind it, or more than it says. */
static void bin_refused(const struct rig *r, const int32_t *h, int n, size_t n_bytes,
                        const char *why)
{
    char path[MAX_PATH];
    struct source *s;
    char *bytes = calloc(1, n_bytes);
    memcpy(bytes, h, (size_t)n * sizeof *h < n_bytes ? (size_t)n * sizeof *h : n_bytes);
    if (file_write(join(path, r->dir, "m.bin"), bytes, n_bytes) != ERR_OK)
        FATAL("%s", err_text());
    free(bytes);
    CHECK(source_open(path, &s) == ERR_DATA);
    CHECK_HAS(err_text(), why);
    source_close(&s);
}

static void test_bins(const struct rig *r)
{
    TEST ("llama2.c and llm.c headers that lie") {
        int32_t a[] = {8, 16, 1, 2, 1, 10, 4}, b[] = {20240326, 3, 4, 10, 1, 2, 8, 16};
        bin_refused(r, a, 7, 28, "its header's sizes make");
        bin_refused(r, a, 7, 20, "truncated");
        a[3] = 3;
        bin_refused(r, a, 7, 28, "do not divide");
        a[3] = 2;
        a[5] = INT32_MIN;
        bin_refused(r, a, 7, 28, "vocab_size = -2147483648");
        a[5] = 10;
        a[2] = 0x7fffffff;
        bin_refused(r, a, 7, 28, "n_layers");
        b[1] = 2;
        bin_refused(r, b, 8, 1024, "version 2");
        b[1] = 3;
        bin_refused(r, b, 8, 1024, "its header's sizes make");
        b[3] = 17;
        bin_refused(r, b, 8, 1024, "vocab_size = 17");
        int32_t v2[] = {0x616b3432, 2};
        bin_refused(r, v2, 2, 256, "version 2");
        int32_t other[] = {0x7f7f7f7f};
        bin_refused(r, other, 1, 64, "no format that is read");
    }
}

static int fetch(void *self, int i, int64_t begin, int64_t end, void *to)
{
    size_t n = dtype_bytes(large_arrays[i].dtype);
    memcpy(to, ((char **)self)[i] + (size_t)begin * n, (size_t)(end - begin) * n);
    return ERR_OK;
}

/* Names are unique within the model group only: the first three arrays. */
static void round_trip(const struct rig *r, int64_t max_file_bytes, const char *name, int n_files)
{
    enum { N = 3 };
    char dir[MAX_PATH], path[MAX_PATH], *values[N];
    struct arena *a = arena_create();
    struct comm *self = comm_self();
    struct source *s;
    const char *metadata[] = {"format", "pt", "odd \"text\"", "\x01\xc3\xa9", NULL};
    for (int i = 0; i < N; i++)
        values[i] = make_values(&large_arrays[i], i, 5);
    struct safetensors_save save = {.folder = join(dir, r->dir, "out"),
                                    .name = name,
                                    .max_file_bytes = max_file_bytes,
                                    .arrays = large_arrays,
                                    .n_arrays = N,
                                    .metadata = metadata,
                                    .fetch = fetch,
                                    .self = values};
    CHECK(safetensors_write(self, &save, a) == ERR_OK);
    CHECK(safetensors_write(self, &save, a) == ERR_DATA);
    CHECK_HAS(err_text(), "is there already");
    save.overwrite = true;
    CHECK(safetensors_write(self, &save, a) == ERR_OK);
    CHECK(source_open(name ? join(path, dir, name) : dir, &s) == ERR_OK);
    CHECK(s->n_arrays == N && ((struct source_files *)s->impl)->n == n_files);
    for (int i = 0; i < N; i++) {
        size_t n = array_bytes(&large_arrays[i]);
        int k = source_find(s, "model", large_arrays[i].name);
        char *got = malloc(n);
        CHECK(k >= 0 && s->arrays[k].dtype == large_arrays[i].dtype &&
              shape_equal(&s->arrays[k].shape, &large_arrays[i].shape));
        CHECK(source_read(s, k, 0, shape_elems(&large_arrays[i].shape), got) == ERR_OK &&
              memcmp(got, values[i], n) == 0);
        free(got);
        free(values[i]);
    }
    CHECK(!exists(dir, "model.safetensors.tmp"));
    source_close(&s);
    comm_close(&self);
    file_remove_tree(dir);
    arena_destroy(&a);
}

int main(void)
{
    struct rig r;
    struct comm *c = comm_self();
    scratch_make(c, r.dir);
    join(r.file, r.dir, "x.safetensors");
    test_lies(&r);
    test_lengths(&r);
    test_index(&r);
    test_bins(&r);
    TEST ("one file, a named one, and several with an index read back to the same bits") {
        round_trip(&r, 0, NULL, 1);
        round_trip(&r, 0, "weights.safetensors", 1);
        round_trip(&r, 20, NULL, 3);
    }
    file_remove_tree(r.dir);
    comm_close(&c);
    return check_done();
}
