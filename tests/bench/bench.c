/* The driver of make bench: settings, who takes part, turns, figures.
 *
 *     bench [NAME=VALUE …]        names: see settings[]; an empty value is none */
#include "bench.h"

#include "base/clock.h"
#include "base/file.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name, *help;
} settings[] = {
    {"rounds", "turns that everybody takes, 1 to 32 (3)"},
    {"cases", "some of them, separated by commas (all)"},
    {"precisions", "fp32, bf16 or both (fp32,bf16)"},
    {"programs",
     "the peers to run, of torch-debian torch-eager torch-compiled llm.c nanoGPT (all)"},
    {"threads", "of the large cases (the cores there are)"},
    {"steps", "a round of a large case, instead of its own; the first third is warm-up"},
    {"isa", "limit for everybody, in oneDNN's words, as AVX512_CORE_BF16 or AVX2 (none)"},
    {"torch_venv", "folder of a virtual environment with a current PyTorch"},
    {"llmc", "a checkout of llm.c"},
    {"nanogpt", "a checkout of nanoGPT"},
    {"stretto", "our program (./stretto)"},
    {"gemm_peak", "the program that times matrix products"},
    {"scripts", "folder of the peers' scripts (tests/bench)"},
    {"work", "folder for what is written (build/bench)"},
    {"json", "where the figures go (build/bench.json)"},
};

static const char *const contenders[] = {"ours",           "torch-debian", "torch-eager",
                                         "torch-compiled", "llm.c",        "nanoGPT"};
enum { N_CONTENDERS = sizeof contenders / sizeof contenders[0] };

static int usage(void)
{
    fprintf(stderr, "usage: bench [NAME=VALUE ...]\n");
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        fprintf(stderr, "  %-12s %s\n", settings[i].name, settings[i].help);
    fprintf(stderr, "cases:");
    for (int i = 0; i < bench_n_cases; i++)
        fprintf(stderr, " %s", bench_cases[i].name);
    fprintf(stderr, "\n");
    return ERR_USAGE;
}

/* The last NAME=VALUE of the command line; dflt where there is none or it is empty. */
static const char *setting(int argc, char **argv, const char *name, const char *dflt)
{
    size_t n = strlen(name);
    const char *v = NULL;
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=')
            v = argv[i] + n + 1;
    return v && *v ? v : dflt;
}

static bool known(const char *word)
{
    const char *eq = strchr(word, '=');
    for (size_t i = 0; eq && i < sizeof settings / sizeof settings[0]; i++)
        if (strlen(settings[i].name) == (size_t)(eq - word) &&
            strncmp(settings[i].name, word, (size_t)(eq - word)) == 0)
            return true;
    return false;
}

static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == 0 || p[n] == ','))
            return true;
    return false;
}

/* Every word of a list must be one that there is. */
static bool words_are_known(const char *list, const char *what, const char *(*word)(int i))
{
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
        int i = 0;
        while (word(i) && strcmp(word(i), w) != 0)
            i++;
        if (!word(i)) {
            fprintf(stderr, "bench: there is no %s \"%s\"\n", what, w);
            return false;
        }
    }
    return true;
}

static const char *case_word(int i)
{
    return i < bench_n_cases ? bench_cases[i].name : NULL;
}

static const char *precision_word(int i)
{
    static const char *const words[] = {"fp32", "bf16", NULL};
    return words[i];
}

static const char *contender_word(int i)
{
    return i < N_CONTENDERS ? contenders[i] : NULL;
}

static int n_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static bool read_conf(int argc, char **argv, struct bench_conf *b)
{
    for (int i = 1; i < argc; i++)
        if (!known(argv[i]))
            return false;
    *b = (struct bench_conf){
        .stretto = setting(argc, argv, "stretto", "./stretto"),
        .gemm_peak = setting(argc, argv, "gemm_peak", "build/release/bench/gemm_peak"),
        .scripts = setting(argc, argv, "scripts", "tests/bench"),
        .work = setting(argc, argv, "work", "build/bench"),
        .torch_venv = setting(argc, argv, "torch_venv", NULL),
        .llmc = setting(argc, argv, "llmc", NULL),
        .nanogpt = setting(argc, argv, "nanogpt", NULL),
        .cases = setting(argc, argv, "cases", NULL),
        .precisions = setting(argc, argv, "precisions", "fp32,bf16"),
        .programs = setting(argc, argv, "programs", NULL),
        .json = setting(argc, argv, "json", "build/bench.json"),
        .isa = setting(argc, argv, "isa", NULL),
        .rounds = atoll(setting(argc, argv, "rounds", "3")),
        .threads = atoll(setting(argc, argv, "threads", "0")),
        .steps = atoll(setting(argc, argv, "steps", "0")),
    };
    if (b->threads == 0)
        b->threads = n_cores();
    return b->rounds >= 1 && b->rounds <= BENCH_ROUNDS_MAX && b->threads >= 1 && b->steps >= 0 &&
           b->steps != 1 && (!b->cases || words_are_known(b->cases, "case", case_word)) &&
           (!b->programs || words_are_known(b->programs, "program", contender_word)) &&
           words_are_known(b->precisions, "precision", precision_word);
}

struct check_lines {
    char *error;
    size_t cap;
};

static bool check_line(void *self, const char *text, double at_s)
{
    struct check_lines *x = self;
    const char *error = strstr(text, "error: ");
    (void)at_s;
    if (error)
        snprintf(x->error, x->cap, "%s", error + 7);
    return true;
}

/* Whether our program takes the case's job at all; its own words in skip if not. */
static void try_ours(const struct bench_conf *b, struct bench_outcome *o)
{
    struct arena *a = arena_create();
    struct bench_result *r = &o->result[0];
    const char *const *job = bench_job(b, o, "check", a);
    struct text command = {0};
    /* its error is on standard error, which otherwise goes to the log */
    text_printf(&command, "exec 2>&1;exec");
    for (int i = 0; job[i]; i++)
        text_printf(&command, " '%s'", job[i]);
    const char *const argv[] = {"sh", "-c", command.s, NULL};
    struct check_lines x = {.error = r->skip, .cap = sizeof r->skip};
    struct bench_child c = {
        .argv = argv, .log = "/dev/null", .limit_s = 60, .line = check_line, .self = &x};
    bench_run(&c);
    if (c.status == 0)
        r->skip[0] = 0;
    else if (!r->skip[0])
        snprintf(r->skip, sizeof r->skip, "check ended with wait status %d", c.status);
    text_clear(&command);
    arena_destroy(&a);
}

static void turn(const struct bench_conf *b, struct bench_outcome *o, struct bench_result *r)
{
    struct arena *a = arena_create();
    const char *skip = NULL;
    double begin = clock_now_s();
    int n = r->n;
    if (r == &o->result[0]) {
        bench_ours(b, o, r);
    } else {
        const char *const *argv = bench_command(b, o, r->key, a, &skip);
        if (argv)
            bench_peer(b, o, r, argv);
        else
            snprintf(r->skip, sizeof r->skip, "%s", skip);
    }
    if (r->n > n)
        printf("  %-16s %s  %-14s %10.3f ms a step  (%.0f s)\n", o->c->name, o->precision, r->key,
               1e3 * r->round[n].step_s, clock_now_s() - begin);
    fflush(stdout);
    arena_destroy(&a);
}

/* Who goes first changes from round to round. */
static void round_of(const struct bench_conf *b, struct bench_outcome *o, int n, int64_t round)
{
    for (int i = 0; i < n; i++) {
        if (o[i].result[0].skip[0])
            continue;
        bench_peak(b, &o[i]);
        for (int k = 0; k < o[i].n_results; k++) {
            struct bench_result *r = &o[i].result[(k + round) % o[i].n_results];
            if (!r->skip[0])
                turn(b, &o[i], r);
        }
    }
}

static void outcome_init(struct bench_outcome *o, const struct bench_conf *b,
                         const struct bench_case *c, const char *precision)
{
    o->c = c;
    o->precision = precision;
    o->threads = c->one_thread ? 1 : (int)b->threads;
    o->n_results = N_CONTENDERS;
    for (int k = 0; k < N_CONTENDERS; k++)
        snprintf(o->result[k].key, sizeof o->result[k].key, "%s", contenders[k]);
    for (int k = 1; k < N_CONTENDERS; k++)
        if (b->programs && !listed(b->programs, contenders[k]))
            snprintf(o->result[k].skip, sizeof o->result[k].skip, "not among PROGRAMS");
}

/* What everybody's programs find when they start. */
static void prepare(const struct bench_conf *b)
{
    char path[512];
    static const char ini[] = "[job]\nname = bench\nmax_steps = 1000000\non_stop = discard\n"
                              "[data]\nsplit = 1\n[optimizer]\ntype = AdamW\nlr = 1e-4\n"
                              "betas = 0.9, 0.999\nweight_decay = 0.1\n";
    snprintf(path, sizeof path, "%s/bench.ini", b->work);
    if (file_make_dirs(b->work) != ERR_OK || file_write(path, ini, sizeof ini - 1) != ERR_OK)
        FATAL("%s", err_text());
    snprintf(path, sizeof path, "%s/stderr.log", b->work);
    (void)unlink(path);
    if (b->isa) {
        setenv("ONEDNN_MAX_CPU_ISA", b->isa, 1);
        setenv("DNNL_MAX_CPU_ISA", b->isa, 1);
    }
}

static void print_load(const char *when)
{
    double load[3];
    if (getloadavg(load, 3) == 3)
        printf("load %s: %.2f (of %d cores)%s\n", when, load[0], n_cores(),
               load[0] > 0.3 * n_cores() ? ": others use them too, only ratios count" : "");
}

int main(int argc, char **argv)
{
    static const char *const precisions[] = {"fp32", "bf16"};
    struct bench_conf b;
    if (!read_conf(argc, argv, &b))
        return usage();
    struct bench_case *own = calloc((size_t)bench_n_cases, sizeof *own);
    struct bench_outcome *o = calloc((size_t)bench_n_cases * 2, sizeof *o);
    if (!own || !o)
        FATAL("out of memory");
    prepare(&b);
    print_load("before");
    int n = 0, rc = ERR_OK;
    for (int i = 0; i < bench_n_cases; i++) {
        own[i] = bench_cases[i];
        if (b.steps > 0 && own[i].block == 1) { /* short steps need their many */
            own[i].steps = b.steps;
            own[i].drop = b.steps > 2 ? b.steps / 3 : 1;
        }
        for (int k = 0; k < 2; k++)
            if ((!b.cases || listed(b.cases, own[i].name)) && listed(b.precisions, precisions[k]))
                outcome_init(&o[n++], &b, &own[i], precisions[k]);
    }
    for (int i = 0; i < n; i++)
        try_ours(&b, &o[i]);
    for (int64_t r = 0; r < b.rounds; r++) {
        printf("round %lld of %lld\n", (long long)r + 1, (long long)b.rounds);
        round_of(&b, o, n, r);
        rc = bench_write_json(&b, o, n); /* what there is, should somebody lose patience */
    }
    for (int i = 0; i < n; i++) {
        if (o[i].result[0].n > 0)
            bench_kernels(&b, &o[i]);
        bench_print(&o[i]);
    }
    print_load("after");
    rc = bench_write_json(&b, o, n);
    printf("%s %s\n", rc == ERR_OK ? "figures in" : "cannot write", b.json);
    free(o);
    free(own);
    return rc;
}
