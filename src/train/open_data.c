/* The data of a run: from its files, or as a checkpoint has it. */
#include "train/setup.h"

#include <string.h>

int run_meta_shape(const struct json *meta, struct sample_shape *shape)
{
    const struct json *s = json_get(meta, "shape");
    int64_t kind;
    if (!s)
        FAIL(ERR_DATA, "there is no \"shape\" of its samples");
    TRY(json_get_i64(s, "kind", &kind));
    TRY(json_get_i64(s, "vocab", &shape->vocab));
    TRY(json_get_i64(s, "n_in", &shape->n_in));
    TRY(json_get_i64(s, "n_out", &shape->n_out));
    if (kind < SAMPLE_TOKENS || kind > SAMPLE_REGRESSION || shape->vocab < 0 || shape->n_in < 0 ||
        shape->n_out < 0)
        FAIL(ERR_DATA, "the \"shape\" of its samples is out of range");
    shape->kind = (enum sample_kind)kind;
    return ERR_OK;
}

/* A source without a file: shape and vocabulary as the checkpoint has them. */
static int data_from_checkpoint(struct run *r, const struct vocab *known)
{
    struct sample_shape shape = {0};
    int rc = run_meta_shape(ckpt_meta(r->from), &shape);
    if (rc != ERR_OK) {
        err_prefix("%s", ckpt_dir(r->from));
        return rc;
    }
    r->data = arena_alloc(r->arena, sizeof *r->data);
    *r->data = (struct data){
        .conf = &r->conf.data.conf, .shape = shape, .vocab = known, .n_samples = {1, 1}};
    return ERR_OK;
}

/* Errors of a source name the file; here they get the line of the job that names it. */
static int open_source(struct run *r, const struct data_choice *d, const struct vocab *known,
                       const struct data *like, struct data **out)
{
    uint64_t seed = (uint64_t)r->conf.model.seed;
    int rc = data_open(d->ops, &d->conf, d->own, seed, known, like, r->arena, out);
    if (rc != ERR_OK)
        err_prefix("%s", job_where(r->conf.job, "data", d->name, "path"));
    return rc;
}

/* A file numbers its classes in their own order: in another file one may have another's number. */
static int check_classes(const struct run *r)
{
    const struct json *list = r->from ? json_get(ckpt_meta(r->from), "classes") : NULL;
    const struct data *d = r->data;
    int64_t i = 0;
    if (!list || !d->classes)
        return ERR_OK;
    for (const struct json *j = list->child; j; j = j->next, i++)
        if (i < d->shape.vocab && j->text && strcmp(j->text, d->classes[i]) != 0)
            FAIL(ERR_DATA,
                 "%s: class %lld is \"%s\", and was \"%.100s\" where %s comes from: is it the same "
                 "data?",
                 d->conf->path, (long long)i, d->classes[i], j->text, ckpt_dir(r->from));
    return ERR_OK;
}

int run_open_data(struct run *r)
{
    const struct vocab *known = NULL;
    if (r->from) {
        const struct json *v = json_get(ckpt_meta(r->from), "vocab");
        if (v && v->type != JSON_NULL)
            TRY(vocab_from_json(v, r->arena, &known));
    }
    if (r->purpose == RUN_GENERATE)
        return data_from_checkpoint(r, known);
    TRY(open_source(r, &r->conf.data, known, NULL, &r->data));
    TRY(check_classes(r));
    if (!r->conf.eval_data.ops)
        return ERR_OK;
    return open_source(r, &r->conf.eval_data, known ? known : r->data->vocab, r->data,
                       &r->eval_data);
}
