/* Every bit of a Linear(10, 2)'s checkpoint: flipped, it is found, named and not loaded.  Bits of
 * all bytes of the manifest and of every 13th elsewhere; all of them where STRETTO_LONG is set.
 * RUN: -n 1 */
#include "ckpt_fixture.h"

#include "ckpt/source.h"
#include "ckpt/verify.h"
#include <fcntl.h>

enum { N_LINEAR = 4 };

static const struct ckpt_array linear[N_LINEAR] = {
    {"model", "0.weight", {2, {2, 10}}, DTYPE_F32, "out_in", NULL},
    {"model", "0.bias", {1, {2}}, DTYPE_F32, "plain", NULL},
    {"optim/momentum_buffer", "0.weight", {2, {2, 10}}, DTYPE_F32, "out_in", NULL},
    {"optim/momentum_buffer", "0.bias", {1, {2}}, DTYPE_F32, "plain", NULL},
};

static int fetch(void *self, int i, int64_t begin, int64_t end, void *to)
{
    float *v = to;
    (void)self;
    for (int64_t e = begin; e < end; e++)
        v[e - begin] = (float)(100 * i + e);
    return ERR_OK;
}

static void make(const char *dir, enum ckpt_type type)
{
    struct comm *c = comm_self();
    struct ckpt_piece pieces[2 * N_LINEAR];
    int n = 0;
    for (int i = 0; i < N_LINEAR; i++) { /* in two shards, the middle to each */
        int64_t all = shape_elems(&linear[i].shape), half = type == CKPT_FULL ? all : all / 2;
        pieces[n++] = (struct ckpt_piece){.array = i, .end = half};
        if (half < all)
            pieces[n++] = (struct ckpt_piece){.array = i, .begin = half, .end = all, .shard = 1};
    }
    struct ckpt_save s = {.output_dir = dir,
                          .step = 7,
                          .run_id = "run",
                          .type = type,
                          .n_shards = type == CKPT_FULL ? 1 : 2,
                          .arrays = linear,
                          .n_arrays = N_LINEAR,
                          .pieces = pieces,
                          .n_pieces = n,
                          .meta = "{\"job\": \"\"}",
                          .fetch = fetch};
    if (ckpt_save(c, &s) != ERR_OK)
        FATAL("%s", err_text());
    comm_close(&c);
}

/* Whether everything loads, to the right values. */
static bool loads(const char *step)
{
    struct source *s;
    bool right = source_open(step, &s) == ERR_OK;
    for (int i = 0; right && i < s->n_arrays; i++) {
        float got[20];
        int64_t n = shape_elems(&s->arrays[i].shape);
        right = n <= 20 && source_read(s, i, 0, n, got) == ERR_OK;
        for (int64_t e = 0; right && e < n; e++)
            right = got[e] == (float)(100 * i + e);
    }
    source_close(&s);
    return right;
}

static int n_faults(const char *step, const char *want)
{
    struct verify_tally n = {0};
    struct text t = {0};
    verify_step(step, NULL, &n, &t);
    if (n.n_faults > 0 && want)
        CHECK_HAS(t.s, want);
    text_clear(&t);
    return n.n_faults;
}

/* Flip bits of one file of the step's folder. */
static void flip_file(const char *step, const char *name, bool all)
{
    char path[MAX_PATH], *bytes;
    size_t n_bytes;
    if (file_read(join(path, step, name), 1 << 20, ERR_DATA, &bytes, &n_bytes) != ERR_OK)
        FATAL("%s", err_text());
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t stride = all || strcmp(name, "manifest.json") == 0 ? 1 : 13;
    for (size_t i = 0; i < n_bytes; i += stride)
        for (int b = all ? 0 : (int)(i % 8); b < (all ? 8 : (int)(i % 8) + 1); b++) {
            char bad = (char)(bytes[i] ^ 1 << b);
            CHECK(pwrite(fd, &bad, 1, (off_t)i) == 1);
            check_that(n_faults(step, name) == 1, __FILE__, __LINE__, "%s, bit %d of byte %zu",
                       name, b, i);
            check_that(i % 4 != 0 || !loads(step), __FILE__, __LINE__, "%s, byte %zu loads", name,
                       i);
            CHECK(pwrite(fd, bytes + i, 1, (off_t)i) == 1);
        }
    close(fd);
    free(bytes);
    CHECK(n_faults(step, NULL) == 0 && loads(step));
}

int main(void)
{
    static const char *const files[][4] = {
        {"manifest.json", "full.h5", NULL},
        {"manifest.json", "shard-00000-of-00002.h5", "shard-00001-of-00002.h5", NULL},
        {"manifest.json", "shard-00000-of-00002.h5", "shard-00001-of-00002.h5", NULL}};
    bool all = getenv("STRETTO_LONG") && strcmp(getenv("STRETTO_LONG"), "1") == 0;
    char dir[MAX_PATH], step[MAX_PATH], run[MAX_PATH];
    struct comm *c = comm_self();
    scratch_make(c, dir);
    for (int type = CKPT_FULL; type <= CKPT_LOCAL; type++)
        TEST (ckpt_type_words[type]) {
            join(run, dir, ckpt_type_words[type]);
            make(run, (enum ckpt_type)type);
            join(step, run, "step-00000007");
            CHECK(n_faults(step, NULL) == 0 && loads(step));
            for (const char *const *f = files[type]; *f; f++)
                flip_file(step, *f, all);
        }
    file_remove_tree(dir);
    comm_close(&c);
    return check_done();
}
