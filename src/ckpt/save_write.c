/* What one rank writes of a save: files laid out, ranges in their places, each with its hash. */
#include "ckpt/save_impl.h"

#include "base/file.h"
#include "base/file_once.h"
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path_of(struct saving *v, int f)
{
    return arena_printf(v->arena, "%s/%s", v->tmp_dir, v->m.files[f].name);
}

/* Take the blocks now, so that a full disk or a quota says so before anything is written.  Some
 * file systems cannot: there the writes find out. */
static int reserve(int fd, const char *path, int64_t n_bytes)
{
    if (fallocate(fd, 0, 0, (off_t)n_bytes) == 0)
        return ERR_OK;
    if ((errno == EOPNOTSUPP || errno == ENOSYS) && ftruncate(fd, (off_t)n_bytes) == 0)
        return ERR_OK;
    FAIL(ERR_RESOURCE, "no room for the %lld bytes of %s: %s", (long long)n_bytes, path,
         strerror(errno));
}

/* The gaps of file f: between all datasets' parts. */
static int find_gaps(struct saving *v, int f, struct ckpt_gap **gaps, int64_t *n_gaps)
{
    const struct placement *p = &v->placement[f];
    struct file_span *s = arena_alloc(v->arena, ((size_t)p->n_parts + 1) * sizeof *s);
    for (int i = 0; i < p->n_parts; i++) {
        const struct placed *x = &p->part[i];
        const struct ckpt_array *of = &v->s.arrays[x->array];
        int64_t begin = place_offset(p, x->array, x->begin);
        int64_t n_bytes = (x->end - x->begin) * (int64_t)dtype_bytes(of->dtype);
        s[i] = (struct file_span){0, begin, begin + n_bytes, of};
    }
    return gaps_find(s, p->n_parts, &v->m.files[f], 1, v->arena, ERR_INTERNAL, -1, gaps, n_gaps);
}

/* From memory to the disk: whatever belongs to no array. */
static int copy_gaps(struct saving *v, int f, int from, int to, const char *path)
{
    struct ckpt_gap *gaps, *all;
    int64_t n;
    TRY(find_gaps(v, f, &gaps, &n));
    char *bytes = malloc(CKPT_CUT_BYTES);
    if (!bytes)
        FAIL(ERR_RESOURCE, "no memory to write %s", path);
    int rc = ERR_OK;
    for (int64_t i = 0; i < n && rc == ERR_OK; i++) {
        struct ckpt_gap *g = &gaps[i];
        g->file = f;
        rc = file_pread_fd(from, path, bytes, (size_t)g->n_bytes, g->offset);
        if (rc != ERR_OK)
            break;
        g->hash = hash64(bytes, (size_t)g->n_bytes, 0);
        rc = file_pwrite_fd(to, path, bytes, (size_t)g->n_bytes, g->offset);
    }
    free(bytes);
    TRY(rc);
    all = arena_alloc(v->arena, (size_t)(v->m.n_gaps + n + 1) * sizeof *all);
    if (v->m.n_gaps)
        memcpy(all, v->m.gaps, (size_t)v->m.n_gaps * sizeof *all);
    memcpy(all + v->m.n_gaps, gaps, (size_t)n * sizeof *all);
    v->m.gaps = all;
    v->m.n_gaps += n;
    return ERR_OK;
}

static int create_file(struct saving *v, int f, int layout)
{
    const char *path = path_of(v, f);
    struct stat st;
    if (fstat(layout, &st) != 0)
        FAIL(ERR_RESOURCE, "cannot stat the layout of %s: %s", path, strerror(errno));
    int shared = v->s.shared ? 0 : O_EXCL; /* another may have come first */
    int fd = open(path, O_WRONLY | O_CREAT | shared | O_CLOEXEC, 0666);
    if (fd < 0)
        FAIL(ERR_RESOURCE, "cannot create %s: %s", path, strerror(errno));
    v->m.files[f].n_bytes = st.st_size;
    v->mine[f] = true;
    int rc = reserve(fd, path, st.st_size);
    if (rc == ERR_OK)
        rc = copy_gaps(v, f, layout, fd, path);
    if (rc == ERR_OK && fsync(fd) != 0)
        rc = err_set(ERR_RESOURCE, "cannot sync %s: %s", path, strerror(errno));
    close(fd);
    return rc;
}

/* Ranks that share a file lay it out alike, and one of them writes the layout. */
int saving_lay_out(struct saving *v, int f)
{
    int layout;
    TRY(place_make(&v->s, f, v->arena, &v->placement[f]));
    TRY(layout_create(path_of(v, f), v->s.step, &v->placement[f], &layout));
    int rc = !v->s.shared || v->s.shared->makes ? create_file(v, f, layout) : ERR_OK;
    close(layout);
    return rc;
}

/* A file that this rank writes to. */
struct target {
    struct file_once file;
    char *bounce; /* CKPT_CUT_BYTES and a block, at the start of one */
};

static int write_range(struct saving *v, struct target *t, const struct ckpt_piece *p,
                       const struct ckpt_range *r)
{
    int64_t elem_bytes = (int64_t)dtype_bytes(v->s.arrays[p->array].dtype);
    size_t n_bytes = (size_t)((r->end - r->begin) * elem_bytes);
    char *bounce = t->bounce + r->offset % FILE_ONCE_BLOCK; /* as file_once_write likes it */
    const char *values = bounce;
    if (!p->values)
        TRY(v->s.fetch(v->s.self, p->array, r->begin, r->end, bounce));
    else if (t->file.direct >= 0)
        memcpy(bounce, (const char *)p->values + (r->begin - p->begin) * elem_bytes, n_bytes);
    else
        values = (const char *)p->values + (r->begin - p->begin) * elem_bytes;
    v->ranges[v->n_ranges] = *r;
    v->ranges[v->n_ranges++].hash = hash64(values, n_bytes, 0);
    if (atomic_load(&v->cancelled))
        FAIL(ERR_STOPPED, "the save of step %lld was given up", (long long)v->s.step);
    return file_once_write(&t->file, values, n_bytes, r->offset);
}

static int write_piece(struct saving *v, struct target *t, const struct ckpt_piece *p)
{
    int64_t elem_bytes = (int64_t)dtype_bytes(v->s.arrays[p->array].dtype);
    for (int64_t at = p->begin; at < p->end;) {
        int64_t offset = place_offset(&v->placement[p->shard], p->array, at);
        REQUIRE(offset >= 0);
        int64_t cut = offset / CKPT_CUT_BYTES * CKPT_CUT_BYTES + CKPT_CUT_BYTES;
        int64_t n = (cut - offset) / elem_bytes, left = p->end - at;
        struct ckpt_range r = {.array = p->array,
                               .begin = at,
                               .end = at + (n < left ? n : left),
                               .file = p->shard,
                               .offset = offset};
        TRY(write_range(v, t, p, &r));
        at = r.end;
    }
    return err_fault(v->c->rank, "ckpt.write");
}

/* This rank's pieces of file f, and its fsync. */
static int write_file(struct saving *v, int f, char *bounce)
{
    struct target t = {.bounce = bounce};
    int rc = ERR_OK;
    TRY(file_once_open(&t.file, path_of(v, f), v->s.shared ? O_CREAT : 0, v->s.past_cache));
    for (int i = 0; i < v->s.n_pieces && rc == ERR_OK; i++)
        if (v->s.pieces[i].shard == f)
            rc = write_piece(v, &t, &v->s.pieces[i]);
    return file_once_close(&t.file, rc);
}

static bool has_file(const struct saving *v, int f)
{
    if (v->s.shared)
        return f == v->s.shared->file;
    if (v->s.type != CKPT_FULL)
        return f % v->c->size == v->c->rank;
    return v->s.n_pieces > 0;
}

int saving_write(struct saving *v)
{
    int64_t most = 0;
    for (int i = 0; i < v->s.n_pieces; i++) {
        const struct ckpt_piece *p = &v->s.pieces[i];
        most += (p->end - p->begin) * (int64_t)dtype_bytes(v->s.arrays[p->array].dtype) /
                    CKPT_CUT_BYTES +
                2;
    }
    v->ranges = arena_alloc(v->arena, ((size_t)most + 1) * sizeof *v->ranges);
    void *bounce = NULL;
    if (posix_memalign(&bounce, FILE_ONCE_BLOCK, CKPT_CUT_BYTES + FILE_ONCE_BLOCK) != 0)
        FAIL(ERR_RESOURCE, "no memory to write %s", v->tmp_dir);
    int rc = ERR_OK;
    for (int f = 0; f < v->m.n_files && rc == ERR_OK; f++) {
        if (!has_file(v, f))
            continue;
        if (v->s.type != CKPT_FULL)
            rc = saving_lay_out(v, f);
        if (rc == ERR_OK)
            rc = write_file(v, f, bounce);
    }
    free(bounce);
    return rc;
}
