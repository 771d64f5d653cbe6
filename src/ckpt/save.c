/* Save: rank 0 lays the file out, every rank writes and hashes its own pieces, rank 0 proves that
 * they cover everything and commits.  One broadcast of offsets, one gather of hashes. */
#include "ckpt/ckpt_impl.h"

#include "base/file.h"
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct saving {
    struct comm *c;            /* borrowed */
    const struct ckpt_save *s; /* borrowed */
    struct arena *arena;       /* owned; ranges and paths, no values */
    struct commit commit;      /* rank 0 */
    struct manifest m;         /* rank 0, but for offset */
    const char *path;          /* of full.h5 */
    struct ckpt_range *ranges;
    int64_t n_ranges;
};

enum { META_BYTES = 256 << 10, META_BYTES_PER_ARRAY = 8 << 10 };

static int64_t array_bytes(const struct ckpt_array *x)
{
    return shape_elems(&x->shape) * (int64_t)dtype_bytes(x->dtype);
}

int64_t ckpt_bytes(const struct ckpt_array *arrays, int n_arrays)
{
    enum { MANIFEST_BYTES_PER_RANGE = 64 };
    int64_t n = META_BYTES;
    for (int i = 0; i < n_arrays; i++) {
        int64_t n_bytes = array_bytes(&arrays[i]);
        n += META_BYTES_PER_ARRAY + (n_bytes + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN +
             (n_bytes / CKPT_CUT_BYTES + 2) * MANIFEST_BYTES_PER_RANGE;
    }
    return n;
}

/* Take the blocks now, so that a full disk or a quota says so before anything is written.  Some
 * file systems cannot: there the writes find out. */
static int reserve(int fd, const char *path, int64_t n_bytes)
{
    if (fallocate(fd, 0, 0, (off_t)n_bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return ERR_OK;
    FAIL(ERR_RESOURCE, "no room for the %lld bytes of %s: %s", (long long)n_bytes, path,
         strerror(errno));
}

/* HDF5 crashes where its last write of metadata fails, so the bytes that it is about to write are
 * proved to fit by writing as many of our own first. */
static int prove_room(const struct saving *v)
{
    enum { BLOCK = 64 << 10 };
    static const char zeros[BLOCK];
    int fd = open(v->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        FAIL(ERR_RESOURCE, "cannot create %s: %s", v->path, strerror(errno));
    int64_t n_meta = META_BYTES + (int64_t)META_BYTES_PER_ARRAY * v->s->n_arrays;
    int rc = reserve(fd, v->path, ckpt_bytes(v->s->arrays, v->s->n_arrays));
    for (int64_t at = 0; at < n_meta && rc == ERR_OK; at += BLOCK)
        rc = file_pwrite_fd(fd, v->path, zeros, BLOCK, at);
    if (rc == ERR_OK && fsync(fd) != 0)
        rc = err_set(ERR_RESOURCE, "cannot sync %s: %s", v->path, strerror(errno));
    close(fd);
    return rc;
}

/* What HDF5 wrote is final: hash it, and take the blocks for the values. */
static int seal_layout(struct saving *v, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        FAIL(ERR_RESOURCE, "cannot stat %s: %s", v->path, strerror(errno));
    v->m.n_bytes = st.st_size;
    TRY(reserve(fd, v->path, v->m.n_bytes));
    TRY(gaps_find(&v->m, v->arena, ERR_INTERNAL, &v->m.gaps, &v->m.n_gaps));
    for (int64_t i = 0; i < v->m.n_gaps; i++)
        TRY(gap_hash(fd, v->path, &v->m.gaps[i], &v->m.gaps[i].hash));
    if (fsync(fd) != 0)
        FAIL(ERR_RESOURCE, "cannot sync %s: %s", v->path, strerror(errno));
    return ERR_OK;
}

/* Rank 0 alone: from the folder to a file without values. */
static int prepare(struct saving *v)
{
    const struct ckpt_save *s = v->s;
    v->m = (struct manifest){.step = s->step,
                             .run_id = s->run_id,
                             .arrays = s->arrays,
                             .n_arrays = s->n_arrays,
                             .offset = v->m.offset,
                             .meta_text = s->meta};
    TRY(commit_begin(&v->commit, v->arena, s->output_dir, s->step,
                     ckpt_bytes(s->arrays, s->n_arrays)));
    TRY(prove_room(v));
    TRY(layout_create(v->path, s->step, s->arrays, s->n_arrays, v->m.offset));
    int fd = open(v->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        FAIL(ERR_RESOURCE, "cannot open %s: %s", v->path, strerror(errno));
    int rc = seal_layout(v, fd);
    close(fd);
    return rc;
}

static int write_piece(struct saving *v, int fd, const struct ckpt_piece *p)
{
    int64_t elem_bytes = (int64_t)dtype_bytes(v->s->arrays[p->array].dtype);
    int64_t offset = v->m.offset[p->array];
    const char *values = p->values;
    for (int64_t at = p->begin; at < p->end;) {
        int64_t cut = (offset + at * elem_bytes) / CKPT_CUT_BYTES * CKPT_CUT_BYTES + CKPT_CUT_BYTES;
        int64_t end = (cut - offset) / elem_bytes;
        if (end > p->end)
            end = p->end;
        size_t n_bytes = (size_t)((end - at) * elem_bytes);
        v->ranges[v->n_ranges++] =
            (struct ckpt_range){p->array, at, end, hash64(values, n_bytes, 0)};
        TRY(file_pwrite_fd(fd, v->path, values, n_bytes, offset + at * elem_bytes));
        values += n_bytes;
        at = end;
    }
    return err_fault(v->c->rank, "ckpt.write");
}

static int write_pieces(struct saving *v)
{
    int64_t most = 0;
    for (int i = 0; i < v->s->n_pieces; i++) {
        const struct ckpt_piece *p = &v->s->pieces[i];
        most += (p->end - p->begin) * (int64_t)dtype_bytes(v->s->arrays[p->array].dtype) /
                    CKPT_CUT_BYTES +
                2;
    }
    v->ranges = arena_alloc(v->arena, (size_t)most * sizeof *v->ranges);
    if (v->s->n_pieces == 0)
        return ERR_OK;
    int fd = open(v->path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        FAIL(ERR_RESOURCE, "cannot open %s: %s", v->path, strerror(errno));
    int rc = ERR_OK;
    for (int i = 0; i < v->s->n_pieces && rc == ERR_OK; i++)
        rc = write_piece(v, fd, &v->s->pieces[i]);
    if (rc == ERR_OK && fsync(fd) != 0)
        rc = err_set(ERR_RESOURCE, "cannot sync %s: %s", v->path, strerror(errno));
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_set(ERR_RESOURCE, "cannot close %s: %s", v->path, strerror(errno));
    return rc;
}

/* The ranges of all ranks, one after another.  Collective on c. */
static void gather_ranges(struct saving *v)
{
    enum { WORDS = sizeof(struct ckpt_range) / sizeof(int64_t) };
    int size = v->c->size, rank = v->c->rank;
    int64_t *n = arena_alloc(v->arena, (size_t)size * sizeof *n);
    int64_t *cut = arena_alloc(v->arena, ((size_t)size + 1) * sizeof *cut);
    n[rank] = v->n_ranges;
    v->c->ops->sum_i64(v->c, n, size);
    for (int r = 0; r < size; r++)
        cut[r + 1] = cut[r] + n[r] * WORDS;
    int64_t n_all = cut[size] / WORDS;
    struct ckpt_range *all = arena_alloc(v->arena, (size_t)n_all * sizeof *all);
    if (v->n_ranges)
        memcpy(all + cut[rank] / WORDS, v->ranges, (size_t)v->n_ranges * sizeof *all);
    v->c->ops->all_gather(v->c, all, cut, sizeof(int64_t));
    v->ranges = all;
    v->n_ranges = n_all;
}

/* Rank 0 alone.  The manifest is read back: nothing is committed that could not be loaded. */
static int finish(struct saving *v)
{
    struct manifest again;
    const char *path = arena_printf(v->arena, "%s/%s", v->commit.tmp_dir, CKPT_MANIFEST);
    v->m.ranges = v->ranges;
    v->m.first_range = arena_alloc(v->arena, ((size_t)v->s->n_arrays + 1) * sizeof(int64_t));
    TRY(cover_check(v->s, v->ranges, v->n_ranges, v->m.first_range));
    TRY(manifest_write(&v->m, path));
    TRY(manifest_read(path, v->arena, &again));
    return commit_end(&v->commit, v->c->rank, v->s->run_id, v->s->keep);
}

static int save(struct saving *v)
{
    bool is_root = v->c->rank == 0;
    size_t n_bytes = (size_t)v->s->n_arrays * sizeof *v->m.offset;
    TRY_ALL(v->c, save_check(v->s, is_root, v->arena));
    TRY(comm_same(v->c, save_hash(v->s), "what a checkpoint is to hold"));
    v->path = arena_printf(v->arena, "%s/step-%08lld.tmp/%s", v->s->output_dir,
                           (long long)v->s->step, CKPT_FILE);
    v->m.offset = arena_alloc(v->arena, n_bytes);
    TRY_ALL(v->c, is_root ? prepare(v) : ERR_OK);
    v->c->ops->broadcast(v->c, v->m.offset, n_bytes, 0);
    TRY_ALL(v->c, write_pieces(v));
    gather_ranges(v);
    TRY_ALL(v->c, is_root ? finish(v) : ERR_OK);
    return ERR_OK;
}

int ckpt_save(struct comm *c, const struct ckpt_save *s)
{
    struct saving v = {.c = c, .s = s, .arena = arena_create()};
    int rc = save(&v);
    commit_undo(&v.commit); /* does nothing once the folder has its name */
    arena_destroy(&v.arena);
    return rc;
}
