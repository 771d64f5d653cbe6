/* Which elements of a checkpoint that is made go to which of its files, and which rank writes them.
 * The files and their ranges are the same however many ranks write. */
#include "train/convert_impl.h"

#include "train/strategy.h"
#include <string.h>

static int64_t n_blocks(const struct ckpt_array *x)
{
    return (shape_elems(&x->shape) + BLOCK_ELEMS - 1) / BLOCK_ELEMS;
}

static int64_t piece_bytes(const struct converting *v, const struct ckpt_piece *p)
{
    return (p->end - p->begin) * (int64_t)dtype_bytes(v->arrays[p->array].dtype);
}

/* One file: tensors in pieces that several ranks can share. */
static struct ckpt_piece *cut_full(const struct converting *v, int *n_pieces)
{
    enum { PIECE_ELEMS = 4 << 20 };
    size_t most = 0;
    for (int i = 0; i < v->n; i++)
        most += (size_t)(shape_elems(&v->arrays[i].shape) / PIECE_ELEMS) + 1;
    struct ckpt_piece *p = arena_alloc(v->a, (most + 1) * sizeof *p);
    *n_pieces = 0;
    for (int i = 0; i < v->n; i++) {
        int64_t n = shape_elems(&v->arrays[i].shape);
        for (int64_t at = 0; at < n; at += PIECE_ELEMS)
            p[(*n_pieces)++] = (struct ckpt_piece){
                .array = i, .begin = at, .end = n - at < PIECE_ELEMS ? n : at + PIECE_ELEMS};
    }
    return p;
}

/* Pieces of one group's tensors, [first, next), whose blocks are shared out evenly. */
static int cut_group(const struct converting *v, int first, int next, int64_t n_parts,
                     struct ckpt_piece *p)
{
    int64_t n_all = 0, at = 0;
    int n_pieces = 0;
    for (int i = first; i < next; i++)
        n_all += n_blocks(&v->arrays[i]);
    for (int i = first; i < next; i++) {
        int64_t n = shape_elems(&v->arrays[i].shape), end;
        for (int64_t b = 0; b < n_blocks(&v->arrays[i]); b = end) {
            int64_t r = (at + b) * n_parts / n_all; /* the part that has this block */
            end = ((r + 1) * n_all + n_parts - 1) / n_parts - at;
            if (end > n_blocks(&v->arrays[i]))
                end = n_blocks(&v->arrays[i]);
            p[n_pieces++] =
                (struct ckpt_piece){.array = i,
                                    .begin = b * BLOCK_ELEMS,
                                    .end = end * BLOCK_ELEMS < n ? end * BLOCK_ELEMS : n,
                                    .shard = (int)r};
        }
        at += n_blocks(&v->arrays[i]);
    }
    return n_pieces;
}

/* Parts of the concatenation of a group's tensors, as a flat array over the ranks is cut. */
static struct ckpt_piece *cut_evenly(const struct converting *v, int64_t n_parts, int *n_pieces)
{
    size_t n_groups = 0;
    for (int i = 0; i < v->n; i++)
        n_groups += i == 0 || strcmp(v->arrays[i].group, v->arrays[i - 1].group) != 0;
    size_t most = (size_t)v->n + n_groups * (size_t)n_parts;
    struct ckpt_piece *p = arena_alloc(v->a, (most + 1) * sizeof *p);
    *n_pieces = 0;
    for (int first = 0, next; first < v->n; first = next) {
        next = first + 1;
        while (next < v->n && strcmp(v->arrays[next].group, v->arrays[first].group) == 0)
            next++;
        *n_pieces += cut_group(v, first, next, n_parts, p + *n_pieces);
    }
    return p;
}

/* The plan that the source's job makes for conf->ranks ranks, as far as one node can tell. */
static int plan_ranks(struct converting *v, struct strategy *strategy, const struct plan **plan)
{
    struct source_model *m = &v->m;
    const struct section_kind *const *kinds = run_kinds(v->a);
    int n_ranks = (int)v->conf->ranks;
    struct run_conf conf;
    struct job *job;
    TRY(job_parse(m->source->path, m->job_text, strlen(m->job_text), 0, NULL, kinds, v->a, &job));
    TRY(job_check(job, kinds));
    TRY(run_conf_read(job, n_ranks, v->a, &conf));
    TRY(strategy_choose(&conf, n_ranks, 0, v->a, strategy));
    TRY(groups_assign(job, &conf.groups, &m->model->table, v->a));
    TRY(strategy_fit(&conf, m->model, strategy));
    *plan = plan_make(m->model, strategy->policy, &strategy->wrap, strategy->group_size, v->a);
    return ERR_OK;
}

/* The part of an array that file f gets: a tensor's and its moments' as the plan cuts the tensor.
 * What belongs to no tensor is the first one's. */
static void planned_part(const struct converting *v, const struct plan *plan, int i, int f,
                         struct ckpt_piece *p)
{
    const struct ckpt_array *x = &v->arrays[i];
    const struct tensor_table *t = &v->m.model->table;
    *p = (struct ckpt_piece){.array = i, .shard = f};
    for (int r = 0; r < t->n_rows; r++)
        if (strcmp(t->rows[r].name, x->name) == 0 && shape_equal(&t->rows[r].shape, &x->shape)) {
            plan_own_part(plan, v->m.model, r, f, &p->begin, &p->end);
            return;
        }
    p->end = f == 0 ? shape_elems(&x->shape) : 0;
}

/* The source's meta with the plan that this checkpoint is cut by. */
static const char *planned_meta(const struct converting *v, const struct strategy *s,
                                const struct plan *plan)
{
    static const char *const own[] = {"strategy", "plan", "local_world"};
    struct text t = {0};
    text_printf(&t, "{");
    for (const struct json *j = v->m.meta->child; j; j = j->next) {
        bool skip = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            skip |= strcmp(j->key, own[i]) == 0;
        if (skip)
            continue;
        text_json_string(&t, j->key);
        text_printf(&t, ":");
        json_print(j, &t);
        text_printf(&t, ",");
    }
    text_printf(&t, "\"strategy\":\"%s\",\"plan\":\"%016llx\",\"local_world\":%d}", s->policy->name,
                (unsigned long long)plan_hash(plan), s->n_ranks);
    const char *out = arena_strdup(v->a, t.s);
    text_clear(&t);
    return out;
}

static int cut_as_planned(struct converting *v, struct cutting *out, struct ckpt_piece **pieces,
                          int *n_pieces)
{
    struct strategy strategy;
    const struct plan *plan;
    if (plan_ranks(v, &strategy, &plan) != ERR_OK) {
        err_prefix("a local checkpoint of %lld ranks is cut as its job would be on them",
                   (long long)v->conf->ranks);
        return ERR_USAGE;
    }
    out->n_files = strategy.group_size;
    out->meta = planned_meta(v, &strategy, plan);
    struct ckpt_piece *p = arena_alloc(v->a, ((size_t)v->n * (size_t)out->n_files + 1) * sizeof *p);
    *n_pieces = 0;
    for (int i = 0; i < v->n; i++)
        for (int f = 0; f < out->n_files; f++) {
            planned_part(v, plan, i, f, &p[*n_pieces]);
            *n_pieces += p[*n_pieces].begin < p[*n_pieces].end;
        }
    *pieces = p;
    return ERR_OK;
}

/* Whole files a rank; of one file a run of its bytes. */
static void keep_own(struct converting *v, bool one_file, struct ckpt_piece *p, int n,
                     struct cutting *out)
{
    int64_t n_bytes = 0, at = 0;
    for (int i = 0; i < n; i++)
        n_bytes += piece_bytes(v, &p[i]);
    out->pieces = p;
    out->n_pieces = 0;
    for (int i = 0; i < n; i++) {
        double middle = (double)at + (double)piece_bytes(v, &p[i]) / 2;
        int rank =
            one_file ? (int)(middle / (double)n_bytes * v->c->size) : p[i].shard % v->c->size;
        at += piece_bytes(v, &p[i]);
        if (rank == v->c->rank)
            p[out->n_pieces++] = p[i];
    }
}

int convert_cut(struct converting *v, enum ckpt_type type, const char *meta, struct cutting *out)
{
    struct ckpt_piece *pieces;
    int n = 0;
    bool goes_on = v->m.source->ckpt && v->m.model && !json_get(v->m.meta, "weights_only") &&
                   !v->conf->weights_only;
    *out = (struct cutting){.n_files = type == CKPT_FULL ? 1 : (int)v->conf->ranks, .meta = meta};
    if (type == CKPT_FULL)
        pieces = cut_full(v, &n);
    else if (type == CKPT_LOCAL && goes_on)
        TRY(cut_as_planned(v, out, &pieces, &n));
    else
        pieces = cut_evenly(v, v->conf->ranks, &n);
    keep_own(v, type == CKPT_FULL, pieces, n, out);
    return ERR_OK;
}
