/* Sampling with temperature and top-k, random numbers counted by position. */
#include "train/sample.h"

#include "base/hash.h"
#include "tensor/half.h"
#include "train/precision.h"
#include <stdlib.h>
#include <string.h>

const struct opt sample_opts[] = {
    STR(sample_conf, prompt, NULL, "text to go on from"),
    I64(sample_conf, tokens, "300", 1, 1e9, "tokens to write"),
    F64(sample_conf, temperature, "0.8", 0, 100, "0: always the likeliest token"),
    I64(sample_conf, top_k, "0", 0, 1e9, "choose among the k likeliest; 0: among all"),
    I64(sample_conf, seed, "1337", 0, 9e15, "seed of the choices"),
    {.type = OPT_END},
};

static int by_value_down(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Smallest logit that is among the k largest. */
static float threshold(const float *logits, float *room, int64_t n, int64_t k)
{
    if (k <= 0 || k >= n)
        return -INFINITY;
    memcpy(room, logits, (size_t)n * sizeof *room);
    qsort(room, (size_t)n, sizeof *room, by_value_down);
    return room[k - 1];
}

static int32_t choose(const float *logits, float *room, int64_t n, const struct sample_conf *c,
                      double u)
{
    int32_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    if (c->temperature <= 0)
        return best;
    float least = threshold(logits, room, n, c->top_k);
    double sum = 0, max = logits[best];
    for (int64_t i = 0; i < n; i++)
        sum += logits[i] >= least ? exp((logits[i] - max) / c->temperature) : 0;
    double at = u * sum, run = 0;
    for (int64_t i = 0; i < n; i++) {
        run += logits[i] >= least ? exp((logits[i] - max) / c->temperature) : 0;
        if (run > at)
            return (int32_t)i;
    }
    return best;
}

static int first_ids(const struct engine *e, const struct sample_conf *c, int32_t **ids, int64_t *n)
{
    const struct vocab *v = e->run->data->vocab;
    const char *prompt = c->prompt && *c->prompt ? c->prompt : "\n";
    int rc = vocab_encode(v, prompt, strlen(prompt), ids, n);
    if (rc == ERR_OK || (c->prompt && *c->prompt))
        return rc;
    /* the text has no line breaks: begin with its first character */
    struct text t = {0};
    vocab_decode(v, 0, &t);
    rc = vocab_encode(v, t.s, t.n_bytes, ids, n);
    text_clear(&t);
    return rc;
}

/* Products are prepared once for each number of rows, so the text is padded to a few lengths,
 * behind its end where causal attention does not look. */
static int64_t padded(int64_t n, int64_t T)
{
    enum { STEP = 32 };
    int64_t up = (n + STEP - 1) / STEP * STEP;
    return up < T ? up : T;
}

/* Logits come in the compute dtype; room is as large as logits. */
static void fetch_logits(struct engine *e, const void *dev_logits, int64_t V, float *room,
                         float *logits)
{
    enum dtype compute = e->run->shard.compute;
    void *to = compute == DTYPE_F32 ? logits : room;
    e->dev->mem->to_host(&e->stream, to, dev_logits, (size_t)V * dtype_bytes(compute));
    for (int64_t i = 0; i < V && compute != DTYPE_F32; i++)
        logits[i] = half_widen(compute, ((const uint16_t *)to)[i]);
    enum dtype output = precision_output(&e->run->conf.strategy);
    for (int64_t i = 0; i < V && output != DTYPE_F32; i++)
        logits[i] = half_widen(output, half_narrow(output, logits[i]));
}

/* ids has room for padding behind its n tokens. */
static void next_logits(struct engine *e, int32_t *ids, int64_t n, void *dev_logits)
{
    int64_t T = e->run->model->shape.T, sample = 0;
    int64_t used = n < T ? n : T, length = padded(used, T);
    memset(ids + n, 0, (size_t)(length - used) * sizeof *ids);
    const struct batch b = {.B = 1, .T = length, .ids = ids + n - used, .sample = &sample};
    struct pass p = engine_pass(e, false, 0);
    p.batch = &b;
    p.logits = dev_logits;
    p.last_only = true;
    p.n_context = used;
    module_forward(e->run->model->root, &p, NULL, NULL);
}

int sample_text(struct engine *e, const struct sample_conf *c, struct text *out,
                void (*on_token)(const char *bytes, size_t n_bytes))
{
    const struct vocab *v = e->run->data->vocab;
    if (!v)
        FAIL(ERR_USAGE, "this model reads no text, so it writes none");
    int32_t *ids;
    int64_t n;
    TRY(first_ids(e, c, &ids, &n));
    int64_t V = e->run->model->shape.vocab; /* at least the vocabulary's ids */
    size_t row = (size_t)V * sizeof(float);
    int32_t *all = realloc(ids, (size_t)(n + c->tokens + e->run->model->shape.T) * sizeof *ids);
    float *logits = malloc(row), *room = malloc(row);
    void *dev_logits = e->dev->mem->alloc(row);
    if (!all || !logits || !room || !dev_logits)
        FATAL("out of memory for a sample");
    if (c->prompt)
        text_add(out, c->prompt, strlen(c->prompt));
    if (on_token && c->prompt)
        on_token(c->prompt, strlen(c->prompt));
    struct rng_key key = rng_key_make((uint64_t)c->seed, hash64_string("sample"));
    for (int64_t i = 0; i < c->tokens; i++, n++) {
        next_logits(e, all, n, dev_logits);
        fetch_logits(e, dev_logits, V, room, logits);
        all[n] = choose(logits, room, v->n_ids, c, rng_uniform(key, (uint64_t)i));
        size_t before = out->n_bytes;
        vocab_decode(v, all[n], out);
        if (on_token)
            on_token(out->s + before, out->n_bytes - before);
    }
    e->dev->mem->free(dev_logits, row);
    free(logits);
    free(room);
    free(all);
    return ERR_OK;
}
