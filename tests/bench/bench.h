/* make bench: what we, the bare matrix product and other people's programs reach on one job.
 *
 * A case is a model, a batch and a number of threads; every case runs in fp32 and in bf16.  A
 * contender is a program that trains it.  Contenders take turns for several rounds, so that what
 * disturbs the machine disturbs all of them; figures are medians over the rounds and ratios of
 * medians.  Functions here print what they skip and why, and end the program only where the driver
 * itself is broken.  All are Local. */
#pragma once
#include "base/arena.h"
#include "base/text.h"
#include <stdint.h>

enum { BENCH_ROUNDS_MAX = 32, BENCH_CONTENDERS = 8, BENCH_KERNELS = 64 };

enum bench_family { BENCH_GPT2, BENCH_LLAMA, BENCH_MLP };

/* Rows of the table in cases.c.  Sizes as in DESIGN's letters. */
struct bench_case {
    const char *name, *what;
    enum bench_family family;
    int64_t B, T, accumulate;
    int64_t L, H, n_kv_head, C, inner, V, T_max;
    bool bias, one_thread;
    const char *gelu; /* "tanh" or "none" (exact), in torch's words */
    double clip;
    int64_t steps, drop; /* steps a round, of which the first drop are warm-up */
    int64_t block;       /* steps a time-stamp */
};

extern const struct bench_case bench_cases[];
extern const int bench_n_cases;

/* Samples or tokens of a step, parameters, and floating-point operations of a model per token:
 * 6 N + 12 L C T. */
int64_t bench_units(const struct bench_case *c);
int64_t bench_params(const struct bench_case *c);
double bench_flops(const struct bench_case *c);
const char *bench_unit_name(const struct bench_case *c);

/* Settings, each NAME=VALUE on the command line. */
struct bench_conf {
    const char *stretto, *gemm_peak, *scripts, *work; /* programs and folders */
    const char *torch_venv, *llmc, *nanogpt;          /* NULL: not given */
    const char *cases, *precisions, *programs, *json, *isa;
    int64_t rounds, threads, steps;
};

struct bench_round {
    double step_s;       /* mean of a step behind the warm-up */
    double first_step_s; /* from starting the program to the end of its first step */
    double peak_bytes;   /* the most memory that was resident */
};

struct bench_result {
    char key[32];   /* "ours", "torch-debian", … */
    char name[96];  /* as the program calls itself */
    char skip[512]; /* why there are no figures; "" if there are */
    struct bench_round round[BENCH_ROUNDS_MAX];
    int n;
};

struct bench_kernel {
    char name[64], lane[16];
    double self_s; /* a step, without what it calls */
    double calls;  /* a step */
};

struct bench_outcome {
    const struct bench_case *c;
    const char *precision; /* "fp32", "bf16" */
    int threads;
    double peak[BENCH_ROUNDS_MAX]; /* GFLOP/s of the bare product, by round */
    int n_peaks;
    char peak_name[96], peak_skip[512];
    struct bench_result result[BENCH_CONTENDERS]; /* 0: ours */
    int n_results;
    struct bench_kernel kernel[BENCH_KERNELS];
    int n_kernels;
    char kernel_skip[512];
};

/* A child: argv[0] is searched in PATH; dir NULL: here.  Its standard output comes line by line to
 * line(), with the time since the start; where that returns false the child gets SIGTERM, and
 * SIGKILL if it is still there after a minute or stays silent for limit_s.  Standard error goes
 * to LOG. */
struct bench_child {
    const char *const *argv;
    const char *dir, *log;
    double limit_s;
    bool (*line)(void *self, const char *text, double at_s);
    void *self;
    /* out */
    int status; /* as waitpid gives it; -1: could not be started */
    double peak_bytes;
};
void bench_run(struct bench_child *child);

/* One run each.  A contender appends to r->round, or sets r->skip. */
void bench_peak(const struct bench_conf *b, struct bench_outcome *o);
void bench_ours(const struct bench_conf *b, struct bench_outcome *o, struct bench_result *r);
void bench_peer(const struct bench_conf *b, struct bench_outcome *o, struct bench_result *r,
                const char *const *argv);
/* Where a step of ours spends its time, by a run with job.profile. */
void bench_kernels(const struct bench_conf *b, struct bench_outcome *o);

/* The command of contender key for this case, words in the arena; NULL with *skip: does not run
 * this case. */
const char *const *bench_command(const struct bench_conf *b, const struct bench_outcome *o,
                                 const char *key, struct arena *a, const char **skip);

/* Arguments of ./stretto train for this case, NULL at the end. */
const char *const *bench_job(const struct bench_conf *b, const struct bench_outcome *o,
                             const char *verb, struct arena *a);
/* Folder of ours for this case. */
const char *bench_folder(const struct bench_conf *b, const struct bench_outcome *o,
                         struct arena *a);

double bench_median(const double *v, int n);
void bench_print(const struct bench_outcome *o);
int bench_write_json(const struct bench_conf *b, const struct bench_outcome *o, int n);
