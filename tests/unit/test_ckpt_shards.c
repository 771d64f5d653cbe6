/* Checkpoints of several files: the same values whatever the type, from any number of ranks; values
 * that are fetched while they are written; missing, swapped, foreign and damaged shards.
 * RUN: -n 1
 * RUN: -n 3 */
#include "ckpt_fixture.h"

#include <hdf5.h>

static const struct ckpt_array *const arrays = large_arrays;

static int save(struct comm *c, enum ckpt_type type, const char *dir, int64_t step, int seed)
{
    return save_typed(c, type, arrays, N_ARRAYS, dir, step, "run", 0, seed);
}

static void test_types(struct comm *c, const char *dir)
{
    char step[MAX_PATH], name[64];
    for (int type = CKPT_SHARDED; type <= CKPT_LOCAL; type++) {
        TEST (ckpt_type_words[type]) {
            struct ckpt *k = NULL;
            CHECK(save(c, (enum ckpt_type)type, dir, type, 3 + type) == ERR_OK);
            snprintf(name, sizeof name, "step-%08d", type);
            CHECK(good_seed(join(step, dir, name)) == 3 + type);
            CHECK(ckpt_open_shared(c, c->rank == 0 ? step : NULL, &k) == ERR_OK);
            CHECK_STR(ckpt_dir(k), step);
            CHECK(ckpt_type_of(k) == (enum ckpt_type)type && ckpt_n_files(k) == c->size);
            CHECK(ckpt_n_arrays(k) == N_ARRAYS && ckpt_step(k) == type);
            snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", c->size - 1, c->size);
            CHECK_STR(ckpt_file_at(k, c->size - 1)->name, name);
            /* what is read is what is asked for, and at most a range more at each end */
            float *want = make_values(&arrays[0], 0, 3 + type), *got = malloc(600000 * sizeof *got);
            CHECK(ckpt_read(k, 0, 100000, 250000, got) == ERR_OK);
            CHECK(memcmp(got, want + 100000, 150000 * sizeof *got) == 0);
            CHECK(ckpt_bytes_read(k) <= 600000 + 2 * (1 << 20) && ckpt_bytes_read(k) >= 600000);
            free(want);
            free(got);
            ckpt_close(&k);
        }
    }
    TEST ("no folder on rank 0 is no checkpoint on any") {
        struct ckpt *k = NULL;
        CHECK(ckpt_open_shared(c, NULL, &k) == ERR_OK && !k);
        CHECK(ckpt_open_shared(c, c->rank == 0 ? dir : NULL, &k) == ERR_DATA && !k);
        CHECK_HAS(err_text(), "manifest.json");
    }
    c->ops->barrier(c);
}

static void test_hdf5(struct comm *c, const char *dir)
{
    char path[MAX_PATH], name[96];
    TEST ("HDF5 reads a shard: the tensor's name, where the part begins, the tensor's shape") {
        int64_t begin = -1, shape[2] = {0};
        int r = c->size - 1;
        snprintf(name, sizeof name, "step-00000001/shard-%05d-of-%05d.h5", r, c->size);
        hid_t f = H5Fopen(join(path, dir, name), H5F_ACC_RDONLY, H5P_DEFAULT);
        hid_t d = H5Dopen2(f, "optim/exp_avg/wte.weight", H5P_DEFAULT);
        float *want = make_values(&arrays[3], 3, 4), *got = malloc(600000 * sizeof *got);
        int64_t first = (int64_t)600000 * r / c->size;
        CHECK(f >= 0 && d >= 0);
        CHECK(H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, got) >= 0);
        CHECK(memcmp(got, want + first, (size_t)(600000 - first) * sizeof *got) == 0);
        if (r > 0) { /* a whole tensor has its own shape instead */
            hid_t a = H5Aopen(d, "begin", H5P_DEFAULT), b = H5Aopen(d, "global_shape", H5P_DEFAULT);
            CHECK(H5Aread(a, H5T_NATIVE_INT64, &begin) >= 0 && begin == first);
            CHECK(H5Aread(b, H5T_NATIVE_INT64, shape) >= 0 && shape[0] == 600 && shape[1] == 1000);
            H5Aclose(a);
            H5Aclose(b);
        } else {
            CHECK(!H5Aexists(d, "begin"));
        }
        free(want);
        free(got);
        H5Dclose(d);
        CHECK(H5Fclose(f) >= 0);
    }
    TEST ("and a local one: groups as they lie in memory") {
        snprintf(name, sizeof name, "step-00000002/shard-00000-of-%05d.h5", c->size);
        hid_t f = H5Fopen(join(path, dir, name), H5F_ACC_RDONLY, H5P_DEFAULT);
        hid_t d = H5Dopen2(f, "local/model/float32", H5P_DEFAULT), s = H5Dget_space(d);
        int64_t n = 600000 / c->size, padded = (n + BLOCK_ELEMS - 1) / BLOCK_ELEMS * BLOCK_ELEMS;
        /* the seven elements of the bias behind the first part, at a whole block */
        CHECK(H5Sget_simple_extent_npoints(s) == padded + 7 / c->size);
        H5Sclose(s);
        H5Dclose(d);
        CHECK(f >= 0 && H5Fclose(f) >= 0);
    }
    c->ops->barrier(c);
}

static int fetch(void *self, int array, int64_t begin, int64_t end, void *to)
{
    const struct ckpt_array *x = &arrays[array];
    int64_t *most = self;
    size_t elem_bytes = dtype_bytes(x->dtype);
    char *all = make_values(x, array, 8);
    memcpy(to, all + (size_t)begin * elem_bytes, (size_t)(end - begin) * elem_bytes);
    free(all);
    if ((end - begin) * (int64_t)elem_bytes > *most)
        *most = (end - begin) * (int64_t)elem_bytes;
    return begin == 11 ? err_set(ERR_DATA, "cannot fetch") : ERR_OK;
}

static void test_fetch(struct comm *c, const char *dir)
{
    char d[MAX_PATH], step[MAX_PATH];
    struct ckpt_piece piece[N_ARRAYS];
    int64_t most = 0;
    struct ckpt_save s = {.output_dir = join(d, dir, "fetched"),
                          .step = 1,
                          .run_id = "run",
                          .type = CKPT_SHARDED,
                          .n_shards = c->size + 2,
                          .arrays = arrays,
                          .n_arrays = N_ARRAYS,
                          .pieces = piece,
                          .meta = "{\"seed\": 8}",
                          .fetch = fetch,
                          .self = &most};
    TEST ("more shards than ranks, some without pieces; values fetched 1 MiB at a time") {
        for (int i = 0; i < N_ARRAYS; i++) { /* all on rank 0, in the shards that are rank 0's */
            int shard = c->size * (i % 2);
            if (c->rank == 0)
                piece[s.n_pieces++] = (struct ckpt_piece){
                    .array = i, .end = shape_elems(&arrays[i].shape), .shard = shard};
        }
        CHECK(ckpt_save(c, &s) == ERR_OK);
        CHECK(good_seed(join(step, d, "step-00000001")) == 8);
        CHECK(exists(step, c->size == 1 ? "shard-00002-of-00003.h5" : "shard-00004-of-00005.h5"));
        CHECK(most <= 1 << 20 && (c->rank > 0 || most > 900000));
    }
    TEST ("a fetch that fails is a save that fails; a shard of another rank is refused") {
        s.step = 2;
        if (c->rank == 0)
            piece[0].begin = 11;
        CHECK(ckpt_save(c, &s) == ERR_DATA);
        CHECK_HAS(err_text(), "cannot fetch");
        c->ops->barrier(c);
        CHECK(!exists(d, "step-00000002") && !exists(d, "step-00000002.tmp"));
        if (c->rank == 0)
            piece[0] = (struct ckpt_piece){.end = 600000, .shard = c->size > 1 ? 1 : 9};
        CHECK(ckpt_save(c, &s) == ERR_INTERNAL);
        CHECK_HAS(err_text(), "on rank 0 of");
        s.fetch = NULL;
        if (c->rank == 0)
            piece[0].shard = 0;
        CHECK(ckpt_save(c, &s) == ERR_INTERNAL);
        CHECK_HAS(err_text(), "without values");
    }
    c->ops->barrier(c);
}

static void refused(const char *step, const char *want)
{
    struct ckpt *k = NULL;
    int rc = ckpt_open(step, &k);
    check_that(rc == ERR_DATA && !k, __FILE__, __LINE__, "%s: status %d", want, rc);
    CHECK_HAS(err_text(), want);
}

static void copy_file(const char *from, const char *to)
{
    char *bytes;
    size_t n;
    if (file_read(from, 1 << 24, ERR_DATA, &bytes, &n) != ERR_OK ||
        file_write(to, bytes, n) != ERR_OK)
        FATAL("%s", err_text());
    free(bytes);
}

/* On three ranks of equal parts, files are as large as each other. */
static void test_damage(struct comm *c, const char *dir)
{
    char step[MAX_PATH], kept[MAX_PATH], p[MAX_PATH], q[MAX_PATH], other[MAX_PATH], name[64];
    join(step, dir, "step-00000001");
    join(kept, dir, "kept.h5");
    int last = c->size - 1;
    snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", last, c->size);
    join(p, step, name);
    TEST ("a missing shard, a stranger, a copy of another shard, one of another step: each named") {
        CHECK(rename(p, kept) == 0);
        refused(step, name);
        CHECK_HAS(err_text(), "is missing");
        copy_file(kept, p);
        copy_file(kept, join(q, step, "shard-00007-of-00009.h5"));
        refused(step, "shard-00007-of-00009.h5 is not of this checkpoint");
        CHECK(unlink(q) == 0);
        copy_file(join(q, join(other, dir, "step-00000009"), name), p);
        refused(step, "or of another checkpoint");
        CHECK_HAS(err_text(), name);
        if (last > 1) {
            copy_file(join(q, step, "shard-00001-of-00003.h5"), p);
            refused(step, "or of another checkpoint");
        }
        copy_file(kept, p);
        CHECK(good_seed(step) == 4);
    }
    TEST ("flipped bits anywhere in a shard, a shard cut short or longer") {
        char *bytes;
        size_t n;
        CHECK(file_read(kept, 1 << 24, ERR_DATA, &bytes, &n) == ERR_OK);
        for (size_t i = 0; i < n; i += n / 40) {
            bytes[i] ^= 16;
            CHECK(file_write(p, bytes, n) == ERR_OK && good_seed(step) == -1);
            CHECK_HAS(err_text(), name);
            bytes[i] ^= 16;
        }
        CHECK(file_write(p, bytes, n - 1) == ERR_OK && good_seed(step) == -1);
        CHECK_HAS(err_text(), "its manifest says");
        CHECK(file_write(p, bytes, n) == ERR_OK && truncate(p, (off_t)n + 1) == 0);
        CHECK(good_seed(step) == -1);
        CHECK(truncate(p, (off_t)n) == 0 && good_seed(step) == 4);
        free(bytes);
    }
}

static void test_copy(struct comm *c, const char *dir)
{
    static const struct ckpt_array small = {"model", "w", {1, {4096}}, DTYPE_F32, "plain", NULL};
    char d[MAX_PATH], a[MAX_PATH], b[MAX_PATH], step[MAX_PATH];
    float values[2048] = {0};
    struct ckpt_piece piece[2] = {{0, 0, 2048, values, 0}, {0, 2048, 4096, values, 1}};
    struct ckpt_save s = {.output_dir = join(d, dir, "twins"),
                          .run_id = "run",
                          .type = CKPT_SHARDED,
                          .n_shards = 2,
                          .arrays = &small,
                          .n_arrays = 1,
                          .pieces = piece,
                          .n_pieces = 2,
                          .meta = "{}"};
    TEST ("a shard that is a copy of its neighbour is told apart by what it says of itself") {
        CHECK(ckpt_save(c, &s) == ERR_OK);
        join(step, d, "step-00000000");
        copy_file(join(a, step, "shard-00000-of-00002.h5"),
                  join(b, step, "shard-00001-of-00002.h5"));
        refused(step, "is a copy of shard-00000-of-00002.h5");
    }
}

int main(void)
{
    struct comm *c;
    if (comm_open_world(&c) != ERR_OK)
        FATAL("%s", err_text());
    check_rank = c->rank;
    char dir[MAX_PATH];
    scratch_make(c, dir);
    test_types(c, dir);
    test_hdf5(c, dir);
    test_fetch(c, dir);
    if (save(c, CKPT_SHARDED, dir, 9, 5) != ERR_OK)
        FATAL("%s", err_text());
    if (c->rank == 0) {
        struct comm *self = comm_self();
        test_damage(c, dir);
        test_copy(self, dir);
        comm_close(&self);
    }
    c->ops->barrier(c);
    if (c->rank == 0)
        file_remove_tree(dir);
    int rc = check_done();
    comm_close(&c);
    return rc;
}
