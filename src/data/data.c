/* Choosing, opening and closing a source. */
#include "data/data_impl.h"

#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *s, size_t n, const char *suffix)
{
    size_t m = strlen(suffix);
    return n >= m && strncasecmp(s + n - m, suffix, m) == 0;
}

static const struct data_ops *type_by_name(const char *path)
{
    size_t n = strlen(path);
    if (ends_with(path, n, ".gz"))
        n -= 3;
    for (int i = 0; data_list[i]; i++)
        for (const char *const *s = data_list[i]->suffixes; s && *s; s++)
            if (ends_with(path, n, *s))
                return data_list[i];
    return NULL;
}

int data_type_of(const struct data_conf *conf, const struct data_ops **ops, const char **key)
{
    *key = "path";
    if (!conf->path || !*conf->path)
        FAIL(ERR_USAGE, "no path is given: it names the file to train on");
    if (conf->type > 0) {
        *ops = data_list[conf->type - 1];
        return ERR_OK;
    }
    if ((*ops = type_by_name(conf->path)))
        return ERR_OK;
    unsigned char head[4];
    size_t n = sizeof head;
    TRY(data_head(conf->path, head, &n));
    bool idx = n == 4 && head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14 && head[3];
    *ops = idx ? &idx_ops : &text_ops;
    return ERR_OK;
}

int data_open(const struct data_ops *ops, const struct data_conf *conf, const void *own_conf,
              uint64_t seed, const struct vocab *known, const struct data *like, struct arena *a,
              struct data **out)
{
    struct data *d = calloc(1, sizeof *d);
    if (!d)
        FAIL(ERR_RESOURCE, "no memory for a data source");
    *d = (struct data){
        .ops = ops, .conf = conf, .arena = a, .seed = seed, .vocab = known, .like = like};
    int rc = conf->path ? ERR_OK : err_set(ERR_USAGE, "no path is given: it names the data file");
    if (rc == ERR_OK)
        rc = ops->open(d, own_conf);
    if (rc == ERR_OK && known && d->shape.kind != SAMPLE_TOKENS)
        rc = err_set(ERR_DATA,
                     "%s holds no tokens, but the checkpoint was trained on tokens of a "
                     "vocabulary of %d",
                     conf->path, known->n_ids);
    if (rc != ERR_OK) {
        data_close(&d);
        return rc;
    }
    *out = d;
    return ERR_OK;
}

void data_close(struct data **d)
{
    if (!*d)
        return;
    if ((*d)->state)
        (*d)->ops->close(*d);
    free(*d);
    *d = NULL;
}
