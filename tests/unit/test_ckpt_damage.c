/* Damage: every flipped bit and every truncation is refused, and a manifest that was made to lie,
 * with a good checksum, is refused or harmless.
 * RUN: -n 1 */
#include "ckpt_fixture.h"

#include "base/hash.h"
#include <fcntl.h>

enum { N_SMALL = 3 };

static const struct ckpt_array arrays[N_SMALL] = {
    {"model", "a", {2, {30, 20}}, DTYPE_F32, "out_in", "b"},
    {"model", "c", {1, {9}}, DTYPE_BF16, "plain", NULL},
    {"optim/exp_avg", "a", {2, {30, 20}}, DTYPE_F32, "plain", NULL},
};

struct rig {
    char dir[MAX_PATH], step[MAX_PATH], h5[MAX_PATH], manifest[MAX_PATH];
    char *text, *bytes; /* owned: both files as they were */
    size_t n_text, n_bytes;
};

static void rig_init(struct rig *r)
{
    struct comm *c = comm_self();
    scratch_make(c, r->dir);
    if (save_arrays(c, arrays, N_SMALL, r->dir, 3, "run", 0, 4) != ERR_OK)
        FATAL("%s", err_text());
    join(r->step, r->dir, "step-00000003");
    join(r->h5, r->step, "full.h5");
    join(r->manifest, r->step, "manifest.json");
    if (file_read(r->manifest, 1 << 20, ERR_DATA, &r->text, &r->n_text) != ERR_OK ||
        file_read(r->h5, 1 << 20, ERR_DATA, &r->bytes, &r->n_bytes) != ERR_OK)
        FATAL("%s", err_text());
    comm_close(&c);
}

/* In place: ext4 syncs a file that is truncated to nothing and written again. */
static void put(const char *path, const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    if (fd < 0 || file_write_fd(fd, path, bytes, n) != ERR_OK || ftruncate(fd, (off_t)n) != 0)
        FATAL("cannot write %s", path);
    close(fd);
}

/* Open, and read whatever it claims to hold. */
static int read_all(const char *step)
{
    struct ckpt *k;
    int rc = ckpt_open(step, &k);
    for (int i = 0; rc == ERR_OK && i < ckpt_n_arrays(k); i++) {
        const struct ckpt_array *x = ckpt_array_at(k, i);
        char *v = malloc(array_bytes(x));
        rc = ckpt_read(k, i, 0, shape_elems(&x->shape), v);
        free(v);
    }
    ckpt_close(&k);
    return rc;
}

static void test_bits(const struct rig *r)
{
    TEST ("every flipped bit of the manifest is refused") {
        for (size_t i = 0; i < r->n_text * 8; i++) {
            r->text[i / 8] ^= (char)(1 << i % 8);
            put(r->manifest, r->text, r->n_text);
            check_that(read_all(r->step) == ERR_DATA, __FILE__, __LINE__, "bit %zu", i);
            r->text[i / 8] ^= (char)(1 << i % 8);
        }
        put(r->manifest, r->text, r->n_text);
        CHECK(good_seed(r->step) == 4);
    }
    TEST ("a flipped bit in every second byte of full.h5 is refused") {
        int fd = open(r->h5, O_WRONLY);
        for (size_t i = 0; i < r->n_bytes; i += 2) {
            char bad = (char)(r->bytes[i] ^ 1 << i / 2 % 8);
            CHECK(pwrite(fd, &bad, 1, (off_t)i) == 1);
            check_that(read_all(r->step) == ERR_DATA, __FILE__, __LINE__, "byte %zu", i);
            CHECK(pwrite(fd, r->bytes + i, 1, (off_t)i) == 1);
        }
        close(fd);
        CHECK(good_seed(r->step) == 4);
    }
}

static void test_sizes(const struct rig *r)
{
    TEST ("every truncation is refused") {
        for (size_t n = 0; n < r->n_text; n++) {
            put(r->manifest, r->text, n);
            CHECK(read_all(r->step) == ERR_DATA);
        }
        put(r->manifest, r->text, r->n_text);
        for (size_t n = r->n_bytes - 1; n > 64; n -= n % 64 ? n % 64 : 64) {
            CHECK(truncate(r->h5, (off_t)n) == 0);
            CHECK(read_all(r->step) == ERR_DATA);
        }
        CHECK_HAS(err_text(), "its manifest says");
        put(r->h5, r->bytes, r->n_bytes);
        CHECK(good_seed(r->step) == 4);
    }
    TEST ("bytes behind the end, an empty and a missing file, and a folder in its place") {
        CHECK(truncate(r->h5, (off_t)r->n_bytes + 1) == 0 && read_all(r->step) == ERR_DATA);
        CHECK(truncate(r->h5, 0) == 0 && read_all(r->step) == ERR_DATA);
        CHECK(unlink(r->h5) == 0 && read_all(r->step) == ERR_DATA);
        CHECK_HAS(err_text(), "full.h5 is missing");
        CHECK(mkdir(r->h5, 0777) == 0 && read_all(r->step) == ERR_DATA);
        CHECK_HAS(err_text(), "is not a regular file");
        CHECK(rmdir(r->h5) == 0);
        put(r->h5, r->bytes, r->n_bytes);
        CHECK(unlink(r->manifest) == 0 && read_all(r->step) == ERR_DATA);
        put(r->manifest, r->text, r->n_text);
        CHECK(good_seed(r->step) == 4);
    }
}

/* Write text up to the checksum member with a checksum that fits. */
static void put_signed(const struct rig *r, const char *text, size_t n)
{
    struct text t = {0};
    text_add(&t, text, n);
    text_printf(&t, "\"checksum\": \"%016llx\"}\n", (unsigned long long)hash64(text, n, 0));
    put(r->manifest, t.s, t.n_bytes);
    text_clear(&t);
}

static size_t body_bytes(const struct rig *r)
{
    return (size_t)(strstr(r->text, "\"checksum\": ") - r->text);
}

static void test_signed_bits(const struct rig *r)
{
    TEST ("bits of the manifest flipped under a good checksum: refused or harmless") {
        size_t n = body_bytes(r);
        int n_read = 0, n_refused = 0;
        for (size_t i = 0; i < n * 8; i++) {
            r->text[i / 8] ^= (char)(1 << i % 8);
            put_signed(r, r->text, n);
            int rc = read_all(r->step);
            check_that(rc == ERR_OK || rc == ERR_DATA, __FILE__, __LINE__, "bit %zu: %d", i, rc);
            *(rc == ERR_OK ? &n_read : &n_refused) += 1;
            r->text[i / 8] ^= (char)(1 << i % 8);
        }
        put(r->manifest, r->text, r->n_text);
        CHECK(n_refused > (int)n * 5 && n_read > 10);
    }
}

/* Replace the first from behind start, sign, and expect the refusal. */
static void lie(const struct rig *r, const char *start, const char *from, const char *to,
                const char *want)
{
    const char *s = strstr(r->text, start), *at = s ? strstr(s, from) : NULL;
    if (!at)
        FATAL("no %s behind %s", from, start);
    struct text t = {0};
    size_t head = (size_t)(at - r->text);
    text_add(&t, r->text, head);
    text_add(&t, to, strlen(to));
    text_add(&t, at + strlen(from), body_bytes(r) - head - strlen(from));
    put_signed(r, t.s, t.n_bytes);
    text_clear(&t);
    int rc = read_all(r->step);
    check_that(rc == ERR_DATA, __FILE__, __LINE__, "%s -> %s: status %d", from, to, rc);
    CHECK_HAS(err_text(), want);
    CHECK_HAS(err_text(), "manifest.json: ");
}

static void test_lies(const struct rig *r)
{
    TEST ("offsets, sizes and products that lie") {
        const char *off = "\"offset\": ";
        lie(r, off, off, "\"offset\": 1", "leave full.h5");
        lie(r, off, off, "\"offset\": -", "leave full.h5");
        lie(r, off, off, "\"offset\": 9223372036854775807, \"x\": ", "beyond 64 bits");
        lie(r, off, off, "\"offset\": 99999999999999999999, \"x\": ", "64 bits");
        lie(r, off, off, "\"offset\": 8, \"x\": ", "belong to no array");
        lie(r, "n_bytes", ": ", ": -1, \"x\": ", "leave full.h5");
        lie(r, "n_bytes", ": ", ": 9223372036854775807, \"x\": ", "belong to no array");
        lie(r, "gaps", "[[0, ", "[[1, ", "belong to no array");
        lie(r, "gaps", "[[0, ", "[[0, -", "belong to no array");
        lie(r, "gaps", "[[", "[[0, 5, \"0123456789abcdef\"], [", "belong to no array");
        lie(r, "shape", "[30, 20]", "[4294967296, 4294967296]", "beyond 64 bits");
        lie(r, "shape", "[30, 20]", "[30, 0]", "dimension 1 is 0");
        lie(r, "shape", "[30, 20]", "[-30, -20]", "dimension 0 is -30");
        lie(r, "shape", "[30, 20]", "[1, 1, 1, 30, 20]", "5 dimensions");
        lie(r, "shape", "[30, 20]", "[31, 20]", "its ranges end at element 600 of 620");
        lie(r, "shape", "[30, 20]", "[3037000499, 759250124]",
            "end at element 600 of 2305843005453811876");
        lie(r, "shape", "[30, 20]", "600", "\"shape\" is missing or no array");
    }
    TEST ("ranges that lie") {
        lie(r, "ranges", "[[0, 200", "[[0, 199", "does not go on at 199");
        lie(r, "ranges", "[[0, 200", "[[0, 601", "does not go on");
        lie(r, "ranges", "[[0, 200", "[[1, 200", "does not go on");
        lie(r, "ranges", "[[0, 200", "[[0, -200", "does not go on");
        lie(r, "ranges", "[[0, 200, \"", "[[0, 200, \"0", "16 hexadecimal digits");
        lie(r, "ranges", "[[0, 200, \"", "[[0, 200, 5], [\"", "16 hexadecimal digits");
        lie(r, "ranges", "[[0, 200,", "[[0,", "[number, number, checksum]");
        lie(r, "ranges", "[[0, 200,", "[[0, 2e2,", "64 bits");
        lie(r, "ranges", "ranges", "Ranges", "\"ranges\" is missing");
    }
    TEST ("names, types and structure that lie") {
        lie(r, "files", "full.h5", "../full.h5", "a file called");
        lie(r, "files", "{", "{}, {", "2 files");
        lie(r, "format", "stretto-2", "stretto-9", "this version reads \"stretto-2\"");
        lie(r, "\"step\"", ": 3", ": -3", "step -3");
        lie(r, "group", "model", "../model", "is no name for a group");
        lie(r, "group", "\"name\": \"a\"", "\"name\": \"..\"", "is no name for an array");
        lie(r, "group", "\"name\": \"a\"", "\"name\": \"c\"", "two arrays are called model/c");
        lie(r, "dtype", "float32", "float31", "unknown dtype");
        lie(r, "dtype", "float32", "float64", "");
        lie(r, "format", "\"meta\": ", "\"mate\": ", "\"meta\" is missing");
        lie(r, "run_id", "\"run\"", "7", "\"run_id\" is not a string");
        lie(r, "layout", "\"out_in\"", "[]", "\"layout\" is not a string");
        lie(r, "arrays", "[", "{}, \"x\": [", "\"arrays\" is missing or no array");
        lie(r, "arrays", "[", "[], \"x\": [", "it lists no arrays");
        lie(r, "arrays", "[", "[7, ", "\"group\" is missing");
        lie(r, "pieces", "pieces", "Pieces", "\"pieces\" is missing");
        lie(r, "pieces", "\"file\": 0", "\"file\": 1", "in file 1 of 1");
        lie(r, "pieces", "\"file\": 0", "\"file\": -1", "in file -1 of 1");
        lie(r, "run_id", "FULL_STATE", "FLAT_STATE", "is not known");
        lie(r, "run_id", "FULL_STATE", "LOCAL_STATE", "a file called");
        lie(r, "files", "\"hash\": \"", "\"hash\": \"0", "16 hexadecimal digits");
        lie(r, "files", "\"hash\"", "\"Hash\"", "is missing");

        lie(r, "format", "{", "{\"a\": 1, \"a\": 2, ", "stands twice");
        put(r->manifest, r->text, r->n_text);
        CHECK(good_seed(r->step) == 4);
    }
}

int main(void)
{
    struct rig r;
    rig_init(&r);
    test_bits(&r);
    test_sizes(&r);
    test_signed_bits(&r);
    test_lies(&r);
    file_remove_tree(r.dir);
    free(r.text);
    free(r.bytes);
    return check_done();
}
