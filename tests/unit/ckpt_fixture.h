/* What the checkpoint tests share: arrays of every dtype, values from a formula, a folder. */
#pragma once
#include "base/file.h"
#include "check.h"
#include "ckpt/ckpt.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_ARRAYS = 8, MAX_PATH = 512 };

static const struct ckpt_array large_arrays[N_ARRAYS] = {
    {"model", "wte.weight", {2, {600, 1000}}, DTYPE_F32, "out_in", "lm_head.weight"},
    {"model", "h.0.attn.c_attn.bias", {1, {7}}, DTYPE_F32, "plain", NULL},
    {"model", "scale", {0, {0}}, DTYPE_F64, "plain", NULL},
    {"optim/exp_avg", "wte.weight", {2, {600, 1000}}, DTYPE_F32, "out_in", NULL},
    {"optim/exp_avg", "h.0.attn.c_attn.bias", {1, {7}}, DTYPE_BF16, "plain", NULL},
    {"optim", "count", {3, {2, 3, 4}}, DTYPE_I64, NULL, NULL},
    {"extra", "half", {4, {2, 2, 2, 2}}, DTYPE_F16, "plain", NULL},
    {"extra", "ints", {1, {5000}}, DTYPE_I32, "plain", NULL},
};

static inline size_t array_bytes(const struct ckpt_array *x)
{
    return (size_t)shape_elems(&x->shape) * dtype_bytes(x->dtype);
}

/* The whole number that element e of array i stands for. */
static inline int64_t number_at(int i, int seed, int64_t e)
{
    return (e * 7919 + i * 131 + seed * 17) % 128;
}

/* Bits of a whole number below 128 in a float of 16 bits. */
static inline uint16_t bits16(enum dtype t, int64_t v)
{
    int e;
    double m = frexp((double)v, &e); /* v = (2 m) 2^(e - 1) */
    int bias = t == DTYPE_BF16 ? 127 : 15, n_mantissa = t == DTYPE_BF16 ? 7 : 10;
    if (v == 0)
        return 0;
    return (uint16_t)(((e - 1 + bias) << n_mantissa) | (int)ldexp(2 * m - 1, n_mantissa));
}

static inline void put_value(enum dtype t, void *out, int64_t e, int64_t v)
{
    switch (t) {
    case DTYPE_F32:
        ((float *)out)[e] = (float)v * 0.5f;
        break;
    case DTYPE_F64:
        ((double *)out)[e] = (double)v * 0.25;
        break;
    case DTYPE_I32:
        ((int32_t *)out)[e] = (int32_t)v - 64;
        break;
    case DTYPE_I64:
        ((int64_t *)out)[e] = v * ((int64_t)1 << 40) + 1;
        break;
    default:
        ((uint16_t *)out)[e] = bits16(t, v);
    }
}

/* Values of a whole array; the caller frees. */
static inline void *make_values(const struct ckpt_array *x, int i, int seed)
{
    void *v = malloc(array_bytes(x));
    if (!v)
        FATAL("out of memory");
    for (int64_t e = 0; e < shape_elems(&x->shape); e++)
        put_value(x->dtype, v, e, number_at(i, seed, e));
    return v;
}

struct values {
    void *of[N_ARRAYS];
    struct ckpt_piece piece[2 * N_ARRAYS];
    int n_pieces;
};

/* Every rank holds two parts of every array, cut anywhere, the later one first. */
static inline void values_init(struct values *v, const struct ckpt_array *arrays, int n, int seed,
                               const struct comm *c)
{
    v->n_pieces = 0;
    for (int i = 0; i < n; i++) {
        v->of[i] = make_values(&arrays[i], i, seed);
        int64_t n_elem = shape_elems(&arrays[i].shape);
        int64_t begin = n_elem * c->rank / c->size, end = n_elem * (c->rank + 1) / c->size;
        int64_t middle = begin + (end - begin) / 3;
        char *at = v->of[i];
        size_t elem_bytes = dtype_bytes(arrays[i].dtype);
        v->piece[v->n_pieces++] =
            (struct ckpt_piece){i, middle, end, at + (size_t)middle * elem_bytes, 0};
        v->piece[v->n_pieces++] =
            (struct ckpt_piece){i, begin, middle, at + (size_t)begin * elem_bytes, 0};
    }
}

static inline void values_clear(struct values *v, int n)
{
    for (int i = 0; i < n; i++)
        free(v->of[i]);
}

/* Save the first n of arrays; meta remembers the seed.  Collective on c. */
static inline int save_typed(struct comm *c, enum ckpt_type type, const struct ckpt_array *arrays,
                             int n, const char *dir, int64_t step, const char *run_id, int64_t keep,
                             int seed)
{
    struct values v;
    char meta[64];
    values_init(&v, arrays, n, seed, c);
    for (int i = 0; i < v.n_pieces && type != CKPT_FULL; i++)
        v.piece[i].shard = c->rank;
    snprintf(meta, sizeof meta, "{\"seed\": %d, \"text\": \"\\u00e9\"}", seed);
    struct ckpt_save s = {.output_dir = dir,
                          .step = step,
                          .run_id = run_id,
                          .type = type,
                          .n_shards = c->size,
                          .keep = keep,
                          .arrays = arrays,
                          .n_arrays = n,
                          .pieces = v.piece,
                          .n_pieces = v.n_pieces,
                          .meta = c->rank == 0 ? meta : NULL};
    int rc = ckpt_save(c, &s);
    values_clear(&v, n);
    return rc;
}

static inline int save_arrays(struct comm *c, const struct ckpt_array *arrays, int n,
                              const char *dir, int64_t step, const char *run_id, int64_t keep,
                              int seed)
{
    return save_typed(c, CKPT_FULL, arrays, n, dir, step, run_id, keep, seed);
}

/* The seed of a checkpoint whose every value is right, else -1 and why in err_text().  Local. */
static inline int good_seed(const char *dir)
{
    struct ckpt *k;
    int64_t seed = -1;
    if (ckpt_open(dir, &k) != ERR_OK)
        return -1;
    int rc = json_get_i64(ckpt_meta(k), "seed", &seed);
    for (int i = 0; i < ckpt_n_arrays(k) && rc == ERR_OK; i++) {
        const struct ckpt_array *x = ckpt_array_at(k, i);
        char *want = make_values(x, i, (int)seed), *got = malloc(array_bytes(x));
        rc = ckpt_read(k, i, 0, shape_elems(&x->shape), got);
        if (rc == ERR_OK && memcmp(want, got, array_bytes(x)) != 0)
            rc = err_set(ERR_DATA, "values of %s/%s differ", x->group, x->name);
        free(want);
        free(got);
    }
    ckpt_close(&k);
    return rc == ERR_OK ? (int)seed : -1;
}

static inline bool exists(const char *dir, const char *name)
{
    char path[2 * MAX_PATH];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return lstat(path, &st) == 0;
}

static inline const char *join(char *buf, const char *dir, const char *name)
{
    if (snprintf(buf, MAX_PATH, "%s/%s", dir, name) >= MAX_PATH)
        FATAL("path too long");
    return buf;
}

/* An empty folder of this test; all ranks get the same. */
static inline void scratch_make(struct comm *c, char *dir)
{
    if (c->rank == 0) {
        const char *base = getenv("TEST_TMP");
        snprintf(dir, MAX_PATH, "%s/ckpt-XXXXXX", base ? base : "/tmp");
        if (!mkdtemp(dir))
            FATAL("cannot make %s", dir);
    }
    c->ops->broadcast(c, dir, MAX_PATH, 0);
}
