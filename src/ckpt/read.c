/* What is in an open checkpoint, and its values, checked when they are read. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include "base/hash.h"
#include "tensor/convert.h"
#include <stdlib.h>
#include <string.h>

const char *ckpt_dir(const struct ckpt *k)
{
    return k->dir;
}

int64_t ckpt_step(const struct ckpt *k)
{
    return k->m.step;
}

const char *ckpt_run_id(const struct ckpt *k)
{
    return k->m.run_id;
}

enum ckpt_type ckpt_type_of(const struct ckpt *k)
{
    return k->m.type;
}

int ckpt_n_files(const struct ckpt *k)
{
    return k->m.n_files;
}

const struct ckpt_file *ckpt_file_at(const struct ckpt *k, int i)
{
    return i >= 0 && i < k->m.n_files ? &k->m.files[i] : NULL;
}

int64_t ckpt_bytes_read(const struct ckpt *k)
{
    return *k->bytes_read;
}

const struct json *ckpt_meta(const struct ckpt *k)
{
    return k->m.meta;
}

int ckpt_n_arrays(const struct ckpt *k)
{
    return k->m.n_arrays;
}

const struct ckpt_array *ckpt_array_at(const struct ckpt *k, int i)
{
    return i >= 0 && i < k->m.n_arrays ? &k->m.arrays[i] : NULL;
}

int ckpt_array_find(const struct ckpt *k, const char *group, const char *name)
{
    int low = 0, high = k->m.n_arrays;
    while (low < high) {
        int mid = low + (high - low) / 2;
        const struct ckpt_array *x = k->sorted[mid];
        int d = strcmp(group, x->group);
        if (d == 0)
            d = strcmp(name, x->name);
        if (d == 0)
            return (int)(x - k->m.arrays);
        if (d < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return -1;
}

/* The part of one range that lies in [begin, end); values belongs to begin. */
static int read_range(const struct ckpt *k, const struct ckpt_range *r, int64_t begin, int64_t end,
                      char *values, char *bounce)
{
    const struct ckpt_array *x = &k->m.arrays[r->array];
    int64_t elem_bytes = (int64_t)dtype_bytes(x->dtype);
    size_t n_bytes = (size_t)((r->end - r->begin) * elem_bytes);
    bool whole = begin <= r->begin && r->end <= end;
    char *to = whole ? values + (r->begin - begin) * elem_bytes : bounce, path[4096];
    int fd;
    TRY(ckpt_file_begin(k, r->file, &fd));
    ckpt_file_path(k, r->file, path, sizeof path);
    int rc = file_pread_fd(fd, path, to, n_bytes, r->offset);
    ckpt_file_end(k, r->file, fd);
    TRY(rc);
    *k->bytes_read += (int64_t)n_bytes;
    if (hash64(to, n_bytes, 0) != r->hash)
        FAIL(ERR_DATA, "%s is damaged: %s/%s, elements [%lld, %lld): their checksum is wrong", path,
             x->group, x->name, (long long)r->begin, (long long)r->end);
    if (whole)
        return ERR_OK;
    int64_t low = begin > r->begin ? begin : r->begin, high = end < r->end ? end : r->end;
    memcpy(values + (low - begin) * elem_bytes, bounce + (low - r->begin) * elem_bytes,
           (size_t)((high - low) * elem_bytes));
    return ERR_OK;
}

static int check_ask(const struct ckpt *k, int i, int64_t begin, int64_t end)
{
    if (i < 0 || i >= k->m.n_arrays)
        FAIL(ERR_INTERNAL, "array %d of a checkpoint of %d", i, k->m.n_arrays);
    const struct ckpt_array *x = &k->m.arrays[i];
    if (begin < 0 || end < begin || end > shape_elems(&x->shape))
        FAIL(ERR_INTERNAL, "elements [%lld, %lld) of %s/%s, which has %lld", (long long)begin,
             (long long)end, x->group, x->name, (long long)shape_elems(&x->shape));
    return ERR_OK;
}

/* The first range of array i that ends behind element begin. */
static int64_t first_range(const struct ckpt *k, int i, int64_t begin)
{
    int64_t low = k->m.first_range[i], high = k->m.first_range[i + 1];
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (k->m.ranges[mid].end > begin)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

int ckpt_read(const struct ckpt *k, int i, int64_t begin, int64_t end, void *values)
{
    TRY(check_ask(k, i, begin, end));
    if (begin == end)
        return ERR_OK;
    char *bounce = malloc(CKPT_CUT_BYTES);
    if (!bounce)
        FAIL(ERR_RESOURCE, "no memory to read %s", k->dir);
    int rc = ERR_OK;
    for (int64_t r = first_range(k, i, begin);
         r < k->m.first_range[i + 1] && k->m.ranges[r].begin < end; r++) {
        rc = read_range(k, &k->m.ranges[r], begin, end, values, bounce);
        if (rc != ERR_OK)
            break;
    }
    free(bounce);
    return rc;
}

/* Range by range, since each is read whole for its checksum anyway. */
int ckpt_read_as(const struct ckpt *k, int i, enum dtype as, int64_t begin, int64_t end,
                 void *values)
{
    TRY(check_ask(k, i, begin, end));
    const struct ckpt_array *x = &k->m.arrays[i];
    if (as == x->dtype || begin == end)
        return ckpt_read(k, i, begin, end, values);
    REQUIRE(dtype_is_float(as) && dtype_is_float(x->dtype));
    char *piece = malloc(CKPT_CUT_BYTES);
    if (!piece)
        FAIL(ERR_RESOURCE, "no memory to read %s", k->dir);
    int rc = ERR_OK;
    for (int64_t at = begin, r = first_range(k, i, begin); at < end && rc == ERR_OK; r++) {
        int64_t stop = k->m.ranges[r].end < end ? k->m.ranges[r].end : end;
        rc = ckpt_read(k, i, at, stop, piece);
        char *to = (char *)values + (size_t)(at - begin) * dtype_bytes(as);
        if (rc == ERR_OK && dtype_convert(as, to, x->dtype, piece, stop - at) > 0)
            rc = err_set(ERR_DATA, "%s: values of %s/%s are beyond the range of %s", k->dir,
                         x->group, x->name, dtype_name(as));
        at = stop;
    }
    free(piece);
    return rc;
}
