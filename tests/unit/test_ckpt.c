/* Checkpoints on real ranks: what is written is what is read, by us, by HDF5 and by h5py; the bytes
 * do not depend on the ranks; keep, latest and find; failures that leave nothing behind.
 * RUN: -n 1
 * RUN: -n 3 */
#include "ckpt_fixture.h"

#include "base/hash.h"
#include <hdf5.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

static const struct ckpt_array *const arrays = large_arrays;

static int save(struct comm *c, const char *dir, int64_t step, const char *run, int64_t keep,
                int seed)
{
    return save_arrays(c, arrays, N_ARRAYS, dir, step, run, keep, seed);
}

static void test_round_trip(struct comm *c, const char *dir)
{
    char step[MAX_PATH], path[MAX_PATH];
    struct ckpt *k = NULL;
    TEST ("every rank reads back what all ranks wrote") {
        CHECK(save(c, dir, 12, "run-a", 0, 5) == ERR_OK);
        CHECK(good_seed(join(step, dir, "step-00000012")) == 5);
        CHECK(!exists(dir, "step-00000012.tmp") && !exists(dir, "step-00000012.old"));
    }
    TEST ("step, meta, table and odd ranges") {
        const char *text;
        CHECK(ckpt_open(step, &k) == ERR_OK);
        CHECK_STR(ckpt_dir(k), step);
        CHECK(ckpt_step(k) == 12 && ckpt_n_arrays(k) == N_ARRAYS);
        CHECK(json_get_string(ckpt_meta(k), "text", &text) == ERR_OK);
        CHECK_STR(text, "\xc3\xa9");
        for (int i = 0; i < N_ARRAYS; i++) {
            const struct ckpt_array *x = ckpt_array_at(k, i), *want = &arrays[i];
            CHECK(ckpt_array_find(k, want->group, want->name) == i);
            CHECK(shape_equal(&x->shape, &want->shape) && x->dtype == want->dtype);
            CHECK(!x->layout == !want->layout && !x->alias == !want->alias);
            CHECK_STR(x->layout ? x->layout : "", want->layout ? want->layout : "");
            CHECK_STR(x->alias ? x->alias : "", want->alias ? want->alias : "");
        }
        CHECK(ckpt_array_find(k, "model", "wte") == -1 && !ckpt_array_at(k, N_ARRAYS));
        float *want = make_values(&arrays[0], 0, 5), *got = malloc(600000 * sizeof *got);
        for (int64_t begin = 0; begin < 600000; begin += 77777)
            for (int64_t n = 1; begin + n <= 600000; n = n * 5 + 3) {
                CHECK(ckpt_read(k, 0, begin, begin + n, got) == ERR_OK);
                CHECK(memcmp(got, want + begin, (size_t)n * sizeof *got) == 0);
            }
        CHECK(ckpt_read(k, 0, 5, 5, NULL) == ERR_OK);
        CHECK(ckpt_read(k, 0, -1, 5, got) == ERR_INTERNAL);
        CHECK(ckpt_read(k, 0, 0, 600001, got) == ERR_INTERNAL);
        CHECK(ckpt_read(k, N_ARRAYS, 0, 1, got) == ERR_INTERNAL);
        free(want);
        free(got);
        ckpt_close(&k);
    }
    TEST ("the disk use that is asked for beforehand is enough, and not twice too much") {
        struct stat st;
        CHECK(stat(join(path, step, "full.h5"), &st) == 0);
        int64_t n_bytes = st.st_size, asked = ckpt_bytes(arrays, N_ARRAYS, CKPT_FULL, 1);
        CHECK(stat(join(path, step, "manifest.json"), &st) == 0);
        CHECK(n_bytes + st.st_size <= asked && asked < 2 * n_bytes);
    }
    c->ops->barrier(c);
}

static bool same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 1;
    if (file_read(a, 1 << 30, ERR_DATA, &x, &n) == ERR_OK)
        (void)file_read(b, 1 << 30, ERR_DATA, &y, &m);
    bool same = x && y && n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

static void test_bytes(struct comm *c, const char *dir)
{
    char a[MAX_PATH], b[MAX_PATH], one[MAX_PATH];
    TEST ("the same state gives the same bytes, and the same full.h5 from one rank") {
        CHECK(save(c, join(a, dir, "again"), 12, "run-a", 0, 5) == ERR_OK);
        CHECK(same_file(join(a, dir, "step-00000012/manifest.json"),
                        join(b, dir, "again/step-00000012/manifest.json")));
        if (c->rank == 0) {
            struct comm *self = comm_self();
            CHECK(save(self, join(one, dir, "one"), 12, "run-a", 0, 5) == ERR_OK);
            CHECK(same_file(join(a, dir, "step-00000012/full.h5"),
                            join(b, dir, "one/step-00000012/full.h5")));
            comm_close(&self);
        }
        c->ops->barrier(c);
    }
    TEST (
        "ranges end where the file position is a multiple of 1 MiB, and hold the bytes' checksum") {
        char *text = NULL;
        size_t n;
        const struct json *root = NULL;
        struct arena *ar = arena_create();
        CHECK(file_read(join(a, dir, "step-00000012/manifest.json"), 1 << 24, ERR_DATA, &text,
                        &n) == ERR_OK);
        CHECK(json_parse(text, n, ar, &root) == ERR_OK);
        const struct json *x = json_at(json_get(json_at(json_get(root, "arrays"), 0), "pieces"), 0);
        float *want = make_values(&arrays[0], 0, 5);
        int64_t offset = 0, at = 0, begin = 0, end = 0;
        CHECK(json_get_i64(x, "offset", &offset) == ERR_OK && offset % 4096 == 0);
        for (const struct json *r = json_get(x, "ranges")->child; r; r = r->next, at = end) {
            char hash[17];
            CHECK(json_as_i64(json_at(r, 0), &begin) == ERR_OK && begin == at);
            CHECK(json_as_i64(json_at(r, 1), &end) == ERR_OK && end > begin);
            CHECK((offset + begin * 4) / 1048576 == (offset + end * 4 - 1) / 1048576);
            snprintf(hash, sizeof hash, "%016llx",
                     (unsigned long long)hash64(want + begin, (size_t)(end - begin) * 4, 0));
            CHECK_STR(json_at(r, 2)->text, hash);
        }
        CHECK(at == 600000);
        free(want);
        free(text);
        arena_destroy(&ar);
    }
    c->ops->barrier(c);
}

static void test_hdf5(const char *dir)
{
    char path[MAX_PATH];
    TEST ("HDF5 reads names, shapes, values and attributes") {
        hid_t f = H5Fopen(join(path, dir, "latest/full.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
        CHECK(f >= 0);
        float *want = make_values(&arrays[3], 3, 5), *got = malloc(600000 * sizeof *got);
        hid_t d = H5Dopen2(f, "optim/exp_avg/wte.weight", H5P_DEFAULT), s = H5Dget_space(d);
        hsize_t dim[2] = {0};
        CHECK(H5Sget_simple_extent_ndims(s) == 2);
        CHECK(H5Sget_simple_extent_dims(s, dim, NULL) == 2 && dim[0] == 600 && dim[1] == 1000);
        CHECK(H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
        CHECK(memcmp(got, want, 600000 * sizeof *got) == 0);
        CHECK(H5Dget_offset(d) % 4096 == 0);
        H5Sclose(s);
        H5Dclose(d);
        d = H5Dopen2(f, "optim/exp_avg/h.0.attn.c_attn.bias", H5P_DEFAULT);
        CHECK(H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
        for (int e = 0; e < 7; e++)
            CHECK(got[e] == (float)number_at(4, 5, e));
        H5Dclose(d);
        d = H5Dopen2(f, "extra/half", H5P_DEFAULT);
        CHECK(H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
        for (int e = 0; e < 16; e++)
            CHECK(got[e] == (float)number_at(6, 5, e));
        H5Dclose(d);
        CHECK(H5Fclose(f) >= 0);
        /* behind the signature: version 2, whose metadata carry checksums */
        char *bytes = NULL;
        size_t n = 0;
        CHECK(file_read(path, 1 << 30, ERR_DATA, &bytes, &n) == ERR_OK);
        CHECK(n > 8 && memcmp(bytes, "\x89HDF\r\n\x1a\n\x02", 9) == 0);
        free(bytes);
        free(want);
        free(got);
    }
}

static void test_h5py(const char *dir)
{
    static const char script[] =
        "import sys, h5py, numpy as np\n"
        "f = h5py.File(sys.argv[1] + '/latest/full.h5', 'r')\n"
        "v = lambda i, n: (np.arange(n) * 7919 + i * 131 + 5 * 17) % 128\n"
        "w = f['model/wte.weight']\n"
        "assert w.shape == (600, 1000) and w.dtype == np.float32\n"
        "assert (w[:].ravel() == v(0, 600000) * np.float32(0.5)).all()\n"
        "assert w.attrs['layout'] == b'out_in' and w.attrs['alias'] == b'lm_head.weight'\n"
        "assert f['model/scale'].shape == () and f['model/scale'][()] == v(2, 1)[0] * 0.25\n"
        "assert (f['model']['h.0.attn.c_attn.bias'][:] == v(1, 7) * 0.5).all()\n"
        "assert (f['optim/exp_avg']['h.0.attn.c_attn.bias'][:] == v(4, 7)).all()\n"
        "c = f['optim/count']\n"
        "assert c.dtype == np.int64 and c.shape == (2, 3, 4) and 'layout' not in c.attrs\n"
        "assert (c[:].ravel() == v(5, 24) * 2**40 + 1).all()\n"
        "h = f['extra/half']\n"
        "assert h.dtype == np.float16 and (h[:].ravel() == v(6, 16)).all()\n"
        "assert (f['extra/ints'][:] == v(7, 5000) - 64).all()\n"
        "assert f.attrs['format'] == b'stretto-2' and f.attrs['step'] == 12\n"
        "assert sorted(f['model']) == ['h.0.attn.c_attn.bias', 'scale', 'wte.weight']\n"
        "assert sorted(f['optim']) == ['count', 'exp_avg'], list(f['optim'])\n";
    char path[MAX_PATH], line[3 * MAX_PATH];
    bool skip = system("/usr/bin/python3 -c 'import h5py' >/dev/null 2>&1") != 0;
    TEST (skip ? "h5py reads it as it is # SKIP no h5py" : "h5py reads it as it is") {
        CHECK(file_write(join(path, dir, "read.py"), script, sizeof script - 1) == ERR_OK);
        snprintf(line, sizeof line, "/usr/bin/python3 %s %s", path, dir);
        CHECK(skip || system(line) == 0);
    }
}

static void test_keep(struct comm *c, const char *dir)
{
    char d[MAX_PATH], path[MAX_PATH], to[64] = {0};
    join(d, dir, "keep");
    TEST ("latest follows; a step that is saved again is replaced") {
        CHECK(save(c, d, 10, "run-a", 2, 1) == ERR_OK);
        CHECK(readlink(join(path, d, "latest"), to, sizeof to - 1) == 13);
        CHECK_STR(to, "step-00000010");
        CHECK(save(c, d, 10, "run-a", 2, 2) == ERR_OK);
        CHECK(good_seed(join(path, d, "latest")) == 2);
        CHECK(!exists(d, "step-00000010.tmp") && !exists(d, "step-00000010.old"));
    }
    TEST ("keep deletes the oldest of its own run only, and what crashes left") {
        if (c->rank == 0)
            CHECK(file_make_dirs(join(path, d, "step-00000099.tmp")) == ERR_OK);
        CHECK(save(c, d, 20, "run-b", 1, 3) == ERR_OK);
        CHECK(exists(d, "step-00000010") && exists(d, "step-00000020"));
        CHECK(!exists(d, "step-00000099.tmp"));
        CHECK(save(c, d, 30, "run-a", 2, 4) == ERR_OK && exists(d, "step-00000010"));
        CHECK(save(c, d, 40, "run-a", 2, 5) == ERR_OK && !exists(d, "step-00000010"));
        CHECK(exists(d, "step-00000020") && exists(d, "step-00000030"));
        CHECK(save(c, d, 50, "run-a", 0, 6) == ERR_OK && exists(d, "step-00000030"));
    }
    TEST ("whose a step is, its manifest's first bytes say; what says nothing is nobody's") {
        char *bytes;
        size_t n;
        if (c->rank == 0) { /* damaged behind its head, and without one */
            join(path, d, "step-00000030/manifest.json");
            CHECK(file_read(path, 1 << 24, ERR_DATA, &bytes, &n) == ERR_OK);
            memset(bytes + n / 2, 'x', 9);
            CHECK(file_write(path, bytes, n) == ERR_OK);
            free(bytes);
            CHECK(file_make_dirs(join(path, d, "step-00000005")) == ERR_OK);
            CHECK(file_write(join(path, d, "step-00000005/manifest.json"), "{}", 2) == ERR_OK);
        }
        CHECK(save(c, d, 60, "run-a", 3, 6) == ERR_OK);
        CHECK(!exists(d, "step-00000030") && exists(d, "step-00000005"));
        CHECK(exists(d, "step-00000040") && exists(d, "step-00000020"));
        c->ops->barrier(c); /* all have looked */
        if (c->rank == 0)
            CHECK(file_remove_tree(join(path, d, "step-00000060")) == ERR_OK &&
                  file_remove_tree(join(path, d, "step-00000005")) == ERR_OK);
        c->ops->barrier(c);
    }
    TEST ("a run that went back keeps what it just wrote, and the newest") {
        CHECK(save(c, d, 35, "run-a", 1, 7) == ERR_OK);
        CHECK(!exists(d, "step-00000040"));
        CHECK(good_seed(join(path, d, "step-00000035")) == 7);
        CHECK(exists(d, "step-00000050") && exists(d, "step-00000020"));
        CHECK(good_seed(join(path, d, "latest")) == 7);
    }
    c->ops->barrier(c);
}

static bool is_clean(const char *d, const char *step)
{
    char tmp[64];
    snprintf(tmp, sizeof tmp, "%s.tmp", step);
    return !exists(d, step) && !exists(d, tmp);
}

/* Change one argument on one rank and expect the same refusal on all. */
static void test_refusals(struct comm *c, const char *dir)
{
    char d[MAX_PATH];
    struct ckpt_array bad[N_ARRAYS];
    struct values v;
    int last = c->size - 1;
    join(d, dir, "refused");
    values_init(&v, arrays, N_ARRAYS, 1, c);
    struct ckpt_save good = {.output_dir = d,
                             .step = 1,
                             .run_id = "r",
                             .arrays = bad,
                             .n_arrays = N_ARRAYS,
                             .pieces = v.piece,
                             .n_pieces = v.n_pieces,
                             .meta = "{}"};
    TEST ("an element that no rank or two ranks save is named, and nothing stays") {
        memcpy(bad, arrays, sizeof bad);
        struct ckpt_save s = good;
        s.n_pieces -= c->rank == last;
        CHECK(ckpt_save(c, &s) == ERR_INTERNAL);
        CHECK_HAS(err_text(), "extra/ints: no rank saves element ");
        s = good;
        if (c->rank == last) {
            v.piece[0].begin--;
            v.piece[0].values = (const char *)v.piece[0].values - 4;
        }
        CHECK(ckpt_save(c, &s) == ERR_INTERNAL);
        CHECK_HAS(err_text(), "model/wte.weight: element");
        CHECK_HAS(err_text(), "twice");
        v.piece[0].begin += c->rank == last;
        v.piece[0].end += 600000;
        CHECK(ckpt_save(c, &s) == ERR_INTERNAL);
        v.piece[0].end -= 600000;
        c->ops->barrier(c);
        CHECK(is_clean(d, "step-00000001") && !exists(d, "latest"));
    }
    TEST ("names, shapes and meta that no file may hold are refused on all ranks") {
        static const char *const names[] = {"", ".", "..", "a/b", "scale"};
        static const char *const groups[] = {"", "/model", "model/", "a//b", "../x", "a/../b"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            memcpy(bad, arrays, sizeof bad);
            bad[1].name = names[i];
            CHECK(ckpt_save(c, &good) == ERR_INTERNAL);
        }
        CHECK_HAS(err_text(), "two arrays are called model/scale");
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
            memcpy(bad, arrays, sizeof bad);
            bad[1].group = groups[i];
            CHECK(ckpt_save(c, &good) == ERR_INTERNAL);
        }
        memcpy(bad, arrays, sizeof bad);
        bad[5].shape.dim[1] = 0;
        CHECK(ckpt_save(c, &good) == ERR_INTERNAL);
        CHECK_HAS(err_text(), "optim/count: dimension 1 is 0");
        memcpy(bad, arrays, sizeof bad);
        struct ckpt_save s = good;
        s.meta = "{\"a\": 1} {}";
        CHECK(ckpt_save(c, &s) == ERR_INTERNAL);
        s.meta = "[1]";
        CHECK(ckpt_save(c, &s) == ERR_INTERNAL);
        CHECK_HAS(err_text(), "no JSON object");
        CHECK(!exists(dir, "refused/step-00000001"));
    }
    TEST ("ranks that do not agree on the arrays are told so") {
        memcpy(bad, arrays, sizeof bad);
        if (c->rank == last)
            bad[3].layout = "in_out";
        CHECK(ckpt_save(c, &good) == (c->size > 1 ? ERR_INTERNAL : ERR_OK));
    }
    values_clear(&v, N_ARRAYS);
    c->ops->barrier(c);
}

static void test_limit(struct comm *c, const char *d, int who, const char *want)
{
    struct rlimit old, low;
    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = 100000;
    if (c->rank == who)
        setrlimit(RLIMIT_FSIZE, &low);
    int rc = save(c, d, 2, "r", 1, 9);
    char text[ERR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", err_text());
    setrlimit(RLIMIT_FSIZE, &old);
    c->ops->barrier(c);
    CHECK(rc == ERR_RESOURCE);
    CHECK_HAS(text, want);
    CHECK(is_clean(d, "step-00000002"));
}

static void test_resources(struct comm *c, const char *dir)
{
    char d[MAX_PATH], path[MAX_PATH];
    join(d, dir, "limits");
    signal(SIGXFSZ, SIG_IGN);
    TEST ("a limit on file sizes: refused before anything is written, with both numbers") {
        CHECK(save(c, d, 1, "r", 1, 8) == ERR_OK);
        test_limit(c, d, 0, "`ulimit -f` allows 98 KiB (100000 bytes)");
    }
    TEST ("a rank that cannot write in the middle: one error on all, the older step stays") {
        if (c->size > 1)
            test_limit(c, d, c->size - 1, "File too large");
        CHECK(good_seed(join(path, d, "latest")) == 8);
    }
    TEST ("a folder that may not be written: refused, on all ranks") {
        bool root = geteuid() == 0;
        if (c->rank == 0) {
            CHECK(chmod(d, 0555) == 0);
            CHECK(!root || seteuid(65534) == 0);
        }
        CHECK(save(c, d, 2, "r", 1, 9) == ERR_RESOURCE);
        CHECK_HAS(err_text(), "ermission denied");
        CHECK(c->rank || !root || seteuid(0) == 0);
        CHECK(c->rank || chmod(d, 0755) == 0);
        c->ops->barrier(c);
        CHECK(is_clean(d, "step-00000002"));
    }
    TEST ("an output folder that is a file") {
        CHECK(save(c, join(path, d, "latest/full.h5"), 2, "r", 1, 9) == ERR_RESOURCE);
        CHECK(good_seed(join(path, d, "latest")) == 8);
    }
    c->ops->barrier(c);
}

/* size=… runs out before, nr_inodes=… when the manifest is made. */
static void full_disk(struct comm *c, const char *dir, const char *options, const char *want)
{
    char d[MAX_PATH];
    join(d, dir, "disk");
    int64_t mounted = 0;
    if (c->rank == 0)
        mounted = file_make_dirs(d) == ERR_OK && mount("none", d, "tmpfs", 0, options) == 0;
    c->ops->broadcast(c, &mounted, sizeof mounted, 0);
    TEST (mounted ? "a full disk leaves nothing of the new step"
                  : "a full disk leaves nothing of the new step # SKIP no right to mount") {
        if (mounted) {
            CHECK(save(c, d, 2, "r", 1, 9) == ERR_RESOURCE);
            CHECK_HAS(err_text(), want);
            c->ops->barrier(c);
            CHECK(is_clean(d, "step-00000002") && !exists(d, "latest"));
        }
        c->ops->barrier(c);
        CHECK(!mounted || c->rank || umount2(d, MNT_DETACH) == 0);
    }
}

/* Only a build with faults has these sites; what they leave behind is the same in any build. */
static void fail_at(struct comm *c, const char *d, int who, const char *site, bool is_saved)
{
#ifdef STRETTO_FAULTS
    char path[MAX_PATH], what[64];
    snprintf(what, sizeof what, "%d:%s:fail", who, site);
    setenv("STRETTO_FAULT", what, 1);
    CHECK(save(c, d, 2, "r", 1, 9) == ERR_RESOURCE);
    unsetenv("STRETTO_FAULT");
    CHECK_HAS(err_text(), site);
    CHECK((strstr(err_text(), "is saved") != NULL) == is_saved);
    c->ops->barrier(c);
    CHECK(exists(d, "step-00000002") == is_saved && !exists(d, "step-00000002.tmp"));
    CHECK(good_seed(join(path, d, "step-00000001")) == 8);
    c->ops->barrier(c);
    if (c->rank == 0)
        CHECK(file_remove_tree(join(path, d, "step-00000002")) == ERR_OK);
    c->ops->barrier(c);
#else
    (void)c, (void)d, (void)who, (void)site, (void)is_saved;
#endif
}

static void test_faults(struct comm *c, const char *dir)
{
    char d[MAX_PATH];
    join(d, dir, "limits");
#ifdef STRETTO_FAULTS
    const char *name = "a failure at each site: what is saved is whole, the rest is gone";
#else
    const char *name = "a failure at each site # SKIP a build without faults";
#endif
    TEST (name) {
        fail_at(c, d, c->size - 1, "ckpt.write", false);
        fail_at(c, d, 0, "ckpt.commit", false);
        fail_at(c, d, 0, "ckpt.latest", true);
        fail_at(c, d, 0, "ckpt.keep", true);
    }
}

int main(void)
{
    struct comm *c;
    char dir[MAX_PATH];
    if (comm_open_world(&c) != ERR_OK)
        FATAL("%s", err_text());
    check_rank = c->rank;
    scratch_make(c, dir);
    test_round_trip(c, dir);
    test_bytes(c, dir);
    if (c->rank == 0) {
        test_hdf5(dir);
        test_h5py(dir);
    }
    test_keep(c, dir);
    test_refusals(c, dir);
    test_resources(c, dir);
    test_faults(c, dir);
    full_disk(c, dir, "size=1m", "a checkpoint needs ");
    full_disk(c, dir, "size=64m,nr_inodes=3", "No space left on device");
    c->ops->barrier(c);
    if (c->rank == 0)
        file_remove_tree(dir);
    int64_t bad = check_done();
    c->ops->max_i64(c, &bad, 1);
    comm_close(&c);
    return (int)bad;
}
