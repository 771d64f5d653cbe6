/* Save in three phases: make the folder (and lay a full file out), write and hash ranges, prove and
 * commit.  A phase's work is local, so it may run behind the training; between phases all ranks
 * agree and exchange: the places in a full file, then the hashes.  Bytes and messages of a rank do
 * not depend on the number of ranks, but for rank 0, which gathers the hashes. */
#include "ckpt/save_impl.h"

#include <stdlib.h>
#include <string.h>

enum { META_BYTES = 256 << 10, META_BYTES_PER_SET = 8 << 10 };

int64_t ckpt_bytes(const struct ckpt_array *arrays, int n_arrays, enum ckpt_type type, int n_shards)
{
    enum { MANIFEST_BYTES_PER_RANGE = 64 };
    int64_t n_files = type == CKPT_FULL ? 1 : n_shards, n = META_BYTES * n_files;
    for (int i = 0; i < n_arrays; i++) {
        int64_t n_bytes = array_bytes(&arrays[i]);
        n += META_BYTES_PER_SET + (n_bytes + CKPT_ALIGN - 1) / CKPT_ALIGN * CKPT_ALIGN +
             (n_bytes / CKPT_CUT_BYTES + 2) * MANIFEST_BYTES_PER_RANGE;
    }
    return n;
}

/* Rank 0 alone. */
static int prepare(struct saving *v)
{
    const struct ckpt_save *s = &v->s;
    int64_t n_bytes = ckpt_bytes(s->arrays, s->n_arrays, s->type, s->n_shards);
    TRY(commit_begin(&v->commit, v->arena, s->output_dir, s->step, n_bytes,
                     s->type == CKPT_FULL ? n_bytes : 0));
    return s->type == CKPT_FULL ? saving_lay_out(v, 0) : ERR_OK;
}

/* Words of all ranks at rank 0, one rank behind another.  Collective on c. */
static int64_t *gather(struct saving *v, const int64_t *own, int64_t n, int64_t *n_all)
{
    struct comm *c = v->c;
    int64_t *cut = arena_alloc(v->arena, ((size_t)c->size + 1) * sizeof *cut);
    int64_t *count = arena_alloc(v->arena, ((size_t)c->size + 1) * sizeof *count);
    for (int r = 0; r <= c->size; r++)
        cut[r] = r;
    c->ops->gather(c, &n, 1, count, cut, sizeof n);
    for (int r = 0; r < c->size && c->rank == 0; r++)
        cut[r + 1] = cut[r] + count[r];
    int64_t *all = NULL;
    if (c->rank == 0) {
        *n_all = cut[c->size];
        all = arena_alloc(v->arena, ((size_t)*n_all + 1) * sizeof *all);
    }
    c->ops->gather(c, own, n, all, cut, sizeof n);
    return all;
}

enum { RANGE_WORDS = sizeof(struct ckpt_range) / sizeof(int64_t) };
enum { GAP_WORDS = sizeof(struct ckpt_gap) / sizeof(int64_t) };
enum { FILE_WORDS = 2 };

/* Rank 0 learns every rank's ranges, gaps and files.  Collective on c. */
static void exchange_parts(struct saving *v, int64_t **files, int64_t *n_files)
{
    int64_t *own = arena_alloc(v->arena, ((size_t)v->m.n_files * FILE_WORDS + 1) * sizeof *own);
    int64_t n = 0, n_all = 0;
    for (int f = 0; f < v->m.n_files; f++)
        if (v->mine[f]) {
            own[n++] = f;
            own[n++] = v->m.files[f].n_bytes;
        }
    *files = gather(v, own, n, n_files);
    void *ranges = gather(v, (const int64_t *)v->ranges, v->n_ranges * RANGE_WORDS, &n_all);
    if (v->c->rank == 0) {
        v->ranges = ranges;
        v->n_ranges = n_all / RANGE_WORDS;
    }
    void *gaps = gather(v, (const int64_t *)v->m.gaps, v->m.n_gaps * GAP_WORDS, &n_all);
    if (v->c->rank == 0) {
        v->m.gaps = gaps;
        v->m.n_gaps = n_all / GAP_WORDS;
    }
}

static int by_file(const void *a, const void *b)
{
    const struct ckpt_gap *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Rank 0: every file was made by one rank. */
static int take_files(struct saving *v, const int64_t *files, int64_t n)
{
    struct manifest *m = &v->m;
    int *made = arena_alloc(v->arena, (size_t)m->n_files * sizeof *made);
    for (int64_t i = 0; i < n; i += FILE_WORDS) {
        made[files[i]]++;
        m->files[files[i]].n_bytes = files[i + 1];
    }
    for (int f = 0; f < m->n_files; f++)
        if (made[f] != 1)
            FAIL(ERR_INTERNAL, "%s is made by %d ranks", m->files[f].name, made[f]);
    qsort(m->gaps, (size_t)m->n_gaps, sizeof *m->gaps, by_file);
    m->first_gap = arena_alloc(v->arena, ((size_t)m->n_files + 1) * sizeof(int64_t));
    for (int64_t i = 0; i < m->n_gaps; i++)
        m->first_gap[m->gaps[i].file + 1]++;
    for (int f = 0; f < m->n_files; f++)
        m->first_gap[f + 1] += m->first_gap[f];
    return ERR_OK;
}

/* Rank 0 alone.  The manifest is read back: nothing is committed that could not be loaded. */
static int finish(struct saving *v)
{
    struct manifest *m = &v->m, again;
    const char *path = arena_printf(v->arena, "%s/%s", v->tmp_dir, CKPT_MANIFEST);
    uint64_t *hash = arena_alloc(v->arena, (size_t)m->n_files * sizeof *hash);
    m->ranges = v->ranges;
    m->first_range = arena_alloc(v->arena, ((size_t)v->s.n_arrays + 1) * sizeof(int64_t));
    TRY(cover_check(&v->s, v->ranges, v->n_ranges, m->first_range));
    files_hash(m, v->arena, hash);
    for (int f = 0; f < m->n_files; f++)
        m->files[f].hash = hash[f];
    TRY(manifest_write(m, path));
    TRY(manifest_read(path, v->arena, &again));
    return commit_end(&v->commit, v->c->rank, &v->s);
}

int saving_create(struct comm *c, const struct ckpt_save *s, struct saving **out)
{
    struct arena *a = arena_create();
    int rc = comm_agree(c, save_check(s, c, a));
    if (rc == ERR_OK)
        rc = comm_same(c, save_hash(s), "what a checkpoint is to hold");
    if (rc != ERR_OK) {
        arena_destroy(&a);
        return rc;
    }
    struct saving *v = arena_alloc(a, sizeof *v);
    struct ckpt_piece *pieces = arena_alloc(a, ((size_t)s->n_pieces + 1) * sizeof *pieces);
    if (s->n_pieces)
        memcpy(pieces, s->pieces, (size_t)s->n_pieces * sizeof *pieces);
    v->c = c;
    v->s = *s;
    v->s.pieces = pieces;
    v->arena = a;
    v->tmp_dir = arena_printf(a, "%s/step-%08lld.tmp", s->output_dir, (long long)s->step);
    v->m = (struct manifest){.step = s->step,
                             .run_id = s->run_id,
                             .type = s->type,
                             .n_files = s->type == CKPT_FULL ? 1 : s->n_shards,
                             .arrays = s->arrays,
                             .n_arrays = s->n_arrays,
                             .meta_text = s->meta};
    size_t n = (size_t)v->m.n_files;
    v->m.files = arena_alloc(a, n * sizeof *v->m.files);
    for (int f = 0; f < v->m.n_files; f++)
        v->m.files[f].name = place_name(s->type, f, v->m.n_files, a);
    v->placement = arena_alloc(a, n * sizeof *v->placement);
    v->mine = arena_alloc(a, n * sizeof *v->mine);
    *out = v;
    return ERR_OK;
}

int saving_work(struct saving *v)
{
    if (v->phase == PHASE_WRITE)
        return saving_write(v);
    if (v->c->rank != 0)
        return ERR_OK;
    return v->phase == PHASE_PREPARE ? prepare(v) : finish(v);
}

/* Where every array of a full file lies: rank 0 has laid it out.  Collective on c. */
static void share_places(struct saving *v)
{
    if (v->s.type != CKPT_FULL)
        return;
    struct placement *p = &v->placement[0];
    int64_t *offset = arena_alloc(v->arena, (size_t)v->s.n_arrays * sizeof *offset);
    if (v->c->rank != 0)
        REQUIRE(place_make(&v->s, 0, v->arena, p) == ERR_OK);
    for (int i = 0; i < p->n_sets; i++)
        offset[i] = p->set[i].offset;
    v->c->ops->broadcast(v->c, offset, (size_t)v->s.n_arrays * sizeof *offset, 0);
    for (int i = 0; i < p->n_sets; i++)
        p->set[i].offset = offset[i];
}

int saving_advance(struct saving *v, int rc, bool *done)
{
    *done = true;
    TRY_ALL(v->c, rc);
    if (v->phase == PHASE_COMMIT)
        return ERR_OK;
    if (v->phase == PHASE_PREPARE) {
        share_places(v);
    } else {
        int64_t *files, n_files = 0;
        exchange_parts(v, &files, &n_files);
        TRY_ALL(v->c, v->c->rank == 0 ? take_files(v, files, n_files) : ERR_OK);
    }
    v->phase++;
    *done = false;
    return ERR_OK;
}

void saving_cancel(struct saving *v)
{
    atomic_store(&v->cancelled, true);
}

void saving_destroy(struct saving **v)
{
    if (!*v)
        return;
    commit_undo(&(*v)->commit); /* does nothing once the folder has its name */
    struct arena *a = (*v)->arena;
    *v = NULL;
    arena_destroy(&a);
}

int ckpt_save(struct comm *c, const struct ckpt_save *s)
{
    struct saving *v;
    bool done = false;
    TRY(saving_create(c, s, &v));
    int rc = ERR_OK;
    while (!done)
        rc = saving_advance(v, saving_work(v), &done);
    saving_destroy(&v);
    return rc;
}
