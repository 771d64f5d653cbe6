/* What is trained in the benchmark, and as which command of each program. */
#include "bench.h"

#include "base/file.h"
#include <string.h>
#include <unistd.h>

static const char text_path[] = "jobs/data/pride_and_prejudice.txt";

/* Sizes of GPT-2 124M; "llama-125m" is as wide and deep, with SwiGLU's usual two thirds. */
#define GPT2_124M                                                                                  \
    .family = BENCH_GPT2, .L = 12, .H = 12, .n_kv_head = 12, .C = 768, .inner = 3072, .V = 50257,  \
    .T_max = 1024, .bias = true, .gelu = "tanh", .block = 1

const struct bench_case bench_cases[] = {
    {.name = "gpt2-124m",
     .what = "GPT-2 124M",
     .B = 4,
     .T = 256,
     .accumulate = 1,
     .steps = 6,
     .drop = 2,
     GPT2_124M},
    {.name = "gpt2-124m-acc4",
     .what = "GPT-2 124M, 4 micro-batches a step",
     .B = 4,
     .T = 256,
     .accumulate = 4,
     .steps = 3,
     .drop = 1,
     GPT2_124M},
    {.name = "gpt2-124m-t1024",
     .what = "GPT-2 124M, long samples",
     .B = 1,
     .T = 1024,
     .accumulate = 1,
     .steps = 6,
     .drop = 2,
     GPT2_124M},
    {.name = "llama-125m",
     .what = "Llama-style 125M",
     .family = BENCH_LLAMA,
     .B = 4,
     .T = 256,
     .accumulate = 1,
     .L = 12,
     .H = 12,
     .n_kv_head = 12,
     .C = 768,
     .inner = 2048,
     .V = 50257,
     .T_max = 256,
     .gelu = "none",
     .steps = 6,
     .drop = 2,
     .block = 1},
    {.name = "nanogpt-cpu",
     .what = "nanoGPT's configuration for CPUs",
     .family = BENCH_GPT2,
     .B = 12,
     .T = 64,
     .accumulate = 1,
     .L = 4,
     .H = 4,
     .n_kv_head = 4,
     .C = 128,
     .inner = 512,
     .V = 256,
     .T_max = 64,
     .gelu = "none",
     .one_thread = true,
     .clip = 1,
     .steps = 120,
     .drop = 20,
     .block = 20},
    {.name = "digits-mlp",
     .what = "MLP 64-128-10 on digits",
     .family = BENCH_MLP,
     .B = 32,
     .accumulate = 1,
     .C = 64,
     .inner = 128,
     .V = 10,
     .bias = true,
     .gelu = "none",
     .one_thread = true,
     .steps = 10000,
     .drop = 2000,
     .block = 1000},
};
const int bench_n_cases = (int)(sizeof bench_cases / sizeof bench_cases[0]);

int64_t bench_units(const struct bench_case *c)
{
    return c->B * (c->T > 0 ? c->T : 1) * c->accumulate;
}

const char *bench_unit_name(const struct bench_case *c)
{
    return c->T > 0 ? "tokens" : "samples";
}

int64_t bench_params(const struct bench_case *c)
{
    int64_t C = c->C, kv = c->H ? C / c->H * c->n_kv_head : 0, biases;
    switch (c->family) {
    case BENCH_MLP:
        return C * c->inner + c->inner + c->inner * c->V + c->V;
    case BENCH_LLAMA:
        return c->L * (2 * C * C + 2 * C * kv + 3 * C * c->inner + 2 * C) + c->V * C + C;
    default:
        biases = c->bias ? c->L * (3 * C + C + c->inner + C + 2 * C) + C : 0;
        return c->L * (4 * C * C + 2 * C * c->inner + 2 * C) + C + biases + c->V * C + c->T_max * C;
    }
}

double bench_flops(const struct bench_case *c)
{
    return 6.0 * (double)bench_params(c) + 12.0 * (double)(c->L * c->C * c->T);
}

enum { WORDS_MAX = 40 };

struct words {
    struct arena *arena;
    const char **word;
    int n;
};

static struct words words_make(struct arena *a)
{
    return (struct words){.arena = a,
                          .word = arena_alloc(a, (WORDS_MAX + 1) * sizeof(const char *))};
}

static void add(struct words *w, const char *word)
{
    REQUIRE(w->n < WORDS_MAX);
    w->word[w->n++] = word;
}

static void add_number(struct words *w, const char *key, int64_t v)
{
    add(w, arena_printf(w->arena, "%s=%lld", key, (long long)v));
}

static void add_word(struct words *w, const char *key, const char *v)
{
    add(w, arena_printf(w->arena, "%s=%s", key, v));
}

const char *bench_folder(const struct bench_conf *b, const struct bench_outcome *o, struct arena *a)
{
    return arena_printf(a, "%s/%s-%s", b->work, o->c->name, o->precision);
}

static void add_model(struct words *w, const struct bench_case *c)
{
    if (c->family == BENCH_MLP) {
        add(w, "model.type=mlp");
        add_number(w, "model.hidden", c->inner);
        add(w, "model.activation=relu");
        add(w, "data.path=jobs/data/digits.csv.gz");
        add(w, "data.task=classification");
        add(w, "data.normalize=minmax");
        return;
    }
    add_word(w, "model.type", c->family == BENCH_LLAMA ? "llama" : "gpt2");
    add_number(w, "model.n_layer", c->L);
    add_number(w, "model.n_head", c->H);
    add_number(w, "model.n_embd", c->C);
    add_number(w, "model.block_size", c->T);
    add_number(w, "model.vocab_size", c->V);
    add_word(w, "data.path", text_path);
    add(w, "data.tokenizer=bytes");
    if (c->family == BENCH_LLAMA) {
        add_number(w, "model.intermediate_size", c->inner);
        add(w, "model.tie_word_embeddings=true");
        return;
    }
    add_word(w, "model.activation", c->gelu[0] == 't' ? "gelu_tanh" : "gelu");
    add_word(w, "model.bias", c->bias ? "true" : "false");
}

const char *const *bench_job(const struct bench_conf *b, const struct bench_outcome *o,
                             const char *verb, struct arena *a)
{
    const struct bench_case *c = o->c;
    struct words w = words_make(a);
    add(&w, b->stretto);
    add(&w, verb);
    add(&w, arena_printf(a, "%s/bench.ini", b->work));
    add_model(&w, c);
    add_number(&w, "data.batch_size", c->B);
    add_number(&w, "strategy.gradient_accumulation_steps", c->accumulate);
    add(&w, arena_printf(a, "strategy.gradient_clipping=%g", c->clip));
    add_word(&w, "strategy.mixed_precision", o->precision[0] == 'b' ? "bf16" : "no");
    add_number(&w, "job.threads", o->threads);
    add_number(&w, "job.log_every", c->steps);
    add_word(&w, "job.output_dir", bench_folder(b, o, a));
    return w.word;
}

static void add_torch(struct words *w, const struct bench_outcome *o, bool compiled)
{
    static const char *const family[] = {"gpt2", "llama", "mlp"};
    const struct bench_case *c = o->c;
    add_word(w, "CASE", family[c->family]);
    add_word(w, "DTYPE", o->precision);
    add_word(w, "GELU", c->gelu);
    add(w, arena_printf(w->arena, "CLIP=%g", c->clip));
    const struct {
        const char *key;
        int64_t v;
    } num[] = {
        {"THREADS", o->threads},
        {"COMPILE", compiled},
        {"B", c->B},
        {"T", c->T},
        {"STEPS", c->steps},
        {"ACCUMULATE", c->accumulate},
        {"V", c->V},
        {"C", c->C},
        {"L", c->L},
        {"H", c->H},
        {"KV", c->n_kv_head},
        {"INNER", c->inner},
        {"TMAX", c->T_max},
        {"BIAS", c->bias},
        {"BLOCK", c->block},
        {"IN", c->C},
        {"HIDDEN", c->inner},
        {"OUT", c->V},
    };
    for (size_t i = 0; i < sizeof num / sizeof num[0]; i++)
        add_number(w, num[i].key, num[i].v);
}

static const char *const *torch_command(const struct bench_conf *b, const struct bench_outcome *o,
                                        const char *key, struct arena *a, const char **skip)
{
    struct words w = words_make(a);
    bool venv = strcmp(key, "torch-debian") != 0;
    if (venv && !b->torch_venv) {
        *skip = "TORCH_VENV=FOLDER was not given";
        return NULL;
    }
    const char *python =
        venv ? arena_printf(a, "%s/bin/python", b->torch_venv) : "/usr/bin/python3";
    if (access(python, X_OK) != 0) {
        *skip = arena_printf(a, "there is no %s", python);
        return NULL;
    }
    add(&w, python);
    add(&w, arena_printf(a, "%s/peer_torch.py", b->scripts));
    add_torch(&w, o, strcmp(key, "torch-compiled") == 0);
    return w.word;
}

/* Peers that are other people's checkouts: one case each, fp32. */
static const char *const *checkout_command(const struct bench_conf *b,
                                           const struct bench_outcome *o, const char *key,
                                           struct arena *a, const char **skip)
{
    bool llmc = strcmp(key, "llm.c") == 0;
    const char *folder = llmc ? b->llmc : b->nanogpt;
    const struct bench_case *c = o->c;
    struct words w = words_make(a);
    if (strcmp(c->name, llmc ? "gpt2-124m" : "nanogpt-cpu") != 0)
        *skip = "trains another model";
    else if (o->precision[0] == 'b')
        *skip = "its CPU program is fp32 only";
    else if (!folder)
        *skip = llmc ? "LLMC=FOLDER was not given" : "NANOGPT=FOLDER was not given";
    if (*skip)
        return NULL;
    add(&w, !llmc && b->torch_venv ? arena_printf(a, "%s/bin/python", b->torch_venv)
                                   : "/usr/bin/python3");
    add(&w, arena_printf(a, "%s/%s", b->scripts, llmc ? "peer_llmc.py" : "peer_nanogpt.py"));
    add_word(&w, "DIR", folder);
    add_word(&w, "WORK", arena_printf(a, "%s/%s", b->work, key));
    add_word(&w, "TEXT", text_path);
    add_number(&w, "THREADS", o->threads);
    add_number(&w, "B", c->B);
    add_number(&w, "T", c->T);
    add_number(&w, "V", c->V);
    add_number(&w, "STEPS", c->steps);
    return w.word;
}

const char *const *bench_command(const struct bench_conf *b, const struct bench_outcome *o,
                                 const char *key, struct arena *a, const char **skip)
{
    *skip = NULL;
    if (strncmp(key, "torch", 5) == 0)
        return torch_command(b, o, key, a, skip);
    return checkout_command(b, o, key, a, skip);
}
