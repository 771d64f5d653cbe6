/* Text: a file as one run of tokens, cut into windows of T with targets one further on.  As in
 * nanoGPT the first part trains and the last part evaluates, so that neither sees the other. */
#include "data/data_impl.h"

#include <stdlib.h>

struct text_conf {
    int tokenizer; /* enum vocab_kind */
};

struct text_state {
    struct vocab_ids tokens; /* owned */
    int64_t first[2], n[2];  /* each part's tokens */
    int64_t T;
};

static const char *const tokenizer_words[] = {"bytes", "chars", NULL};

static const struct opt text_opts[] = {
    ENUM(text_conf, tokenizer, "bytes", tokenizer_words,
         "a token is a byte (256 ids), or a character of those that the file has (UTF-8)"),
    {.type = OPT_END},
};

/* Turns the file's bytes, which it takes, into tokens. */
static int tokenize(struct data *d, const struct text_conf *c, char *take_bytes, size_t n_bytes)
{
    struct text_state *s = d->state;
    if (c->tokenizer == VOCAB_BYTES) { /* a byte is its own id: no copy */
        s->tokens = (struct vocab_ids){take_bytes, 1, (int64_t)n_bytes};
        d->vocab = vocab_bytes();
        return ERR_OK;
    }
    int rc = d->vocab ? ERR_OK : vocab_from_text(take_bytes, n_bytes, d->arena, &d->vocab);
    if (rc == ERR_OK)
        rc = vocab_encode_packed(d->vocab, take_bytes, n_bytes, &s->tokens);
    free(take_bytes);
    if (rc != ERR_OK)
        err_prefix("%s", d->conf->path);
    return rc;
}

static int text_open(struct data *d, const void *conf)
{
    const struct text_conf *c = conf;
    const char *path = d->conf->path;
    if (d->vocab && (int)d->vocab->kind != c->tokenizer)
        FAIL(ERR_USAGE, "%s: tokenizer = %s, but the checkpoint was trained with %s", path,
             tokenizer_words[c->tokenizer], vocab_kind_name(d->vocab->kind));
    if (!(d->state = calloc(1, sizeof(struct text_state))))
        FAIL(ERR_RESOURCE, "no memory for a data source");
    char *bytes;
    size_t n_bytes;
    TRY(data_read(path, &bytes, &n_bytes));
    if (n_bytes == 0) {
        free(bytes);
        FAIL(ERR_DATA, "%s is empty", path);
    }
    TRY(tokenize(d, c, bytes, n_bytes));
    d->shape = (struct sample_shape){.kind = SAMPLE_TOKENS, .vocab = d->vocab->n_ids};
    return ERR_OK;
}

static int text_cut(struct data *d, int64_t T)
{
    struct text_state *s = d->state;
    int64_t n = s->tokens.n_ids;
    double share = data_share(d->conf, 0.9);
    REQUIRE(T > 0);
    s->T = T;
    s->first[DATA_TRAIN] = 0;
    s->first[DATA_EVAL] = s->n[DATA_TRAIN] = share < 1 ? (int64_t)((double)n * share) : n;
    s->n[DATA_EVAL] = n - s->n[DATA_TRAIN];
    for (int part = DATA_TRAIN; part <= DATA_EVAL; part++) {
        if (s->n[part] < 2 && (part == DATA_TRAIN || share < 1))
            FAIL(ERR_DATA,
                 "%s is too short: split = %g of its %lld tokens leaves %lld to %s, and "
                 "two are the least",
                 d->conf->path, share, (long long)n, (long long)s->n[part],
                 part == DATA_TRAIN ? "train on" : "evaluate on (split = 1 does without)");
        /* the last token is only a target */
        d->n_samples[part] = s->n[part] > 0 ? (s->n[part] - 1 + T - 1) / T : 0;
    }
    return ERR_OK;
}

static int64_t text_n_valid(const struct data *d, enum data_part part, int64_t i)
{
    const struct text_state *s = d->state;
    REQUIRE(i >= 0 && i < d->n_samples[part]);
    int64_t left = s->n[part] - 1 - i * s->T;
    return left < s->T ? left : s->T;
}

static void text_get(const struct data *d, enum data_part part, int64_t i,
                     const struct batch_row *row)
{
    const struct text_state *s = d->state;
    int64_t n = text_n_valid(d, part, i), at = s->first[part] + i * s->T;
    for (int64_t t = 0; t < s->T; t++) {
        row->ids[t] = t < n ? vocab_ids_at(&s->tokens, at + t) : 0;
        row->targets[t] = t < n ? vocab_ids_at(&s->tokens, at + t + 1) : -1;
    }
}

static void text_close(struct data *d)
{
    struct text_state *s = d->state;
    free(s->tokens.ids);
    free(s);
}

static const char *const text_suffixes[] = {".txt", ".text", ".md", NULL};

const struct data_ops text_ops = {
    .name = "text",
    .suffixes = text_suffixes,
    .opts = text_opts,
    .conf_bytes = sizeof(struct text_conf),
    .open = text_open,
    .cut = text_cut,
    .n_valid = text_n_valid,
    .get = text_get,
    .close = text_close,
};
