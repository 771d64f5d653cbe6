/* The rate of streaming arrays on disk through memory, by each way to do it, in turns.
 *
 *     offload FOLDER [MIB] [PASSES] [ROUNDS] [BLOCK_BYTES] [QUEUE_DEPTH]
 *
 * Two arrays of MIB (256) together, as AdamW's moments, in tiles of 4 MiB: a pass reads, changes
 * and writes all of them, as a step does.  Times end when the disk has everything (sync).  Prints
 * every round, with the processor time of all threads, and the ratio of the medians. */
#include "parallel/offload.h"

#include "base/clock.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { N_ARRAYS = 2, TILE = 1 << 20, ROUNDS_MAX = 99 };

static void change(void *arg, const struct offload_tile *t, float *const *v)
{
    (void)arg;
    for (int64_t i = 0; i < t->n; i++) {
        v[0][i] = 0.9f * v[0][i] + 0.1f;
        v[1][i] = 0.999f * v[1][i] + 0.001f;
    }
}

/* Seconds of the passes behind the first one, which gives the file its blocks; < 0: not to be had.
 */
static double run(const struct offload_conf *conf, int64_t n_elem, int passes, double *cpu_s)
{
    const int64_t elems[N_ARRAYS] = {n_elem, n_elem};
    int64_t n = 0;
    struct offload_tile *tile = calloc((size_t)(n_elem / TILE), sizeof *tile);
    struct offload *o;
    if (!tile || offload_create(conf, N_ARRAYS, elems, &o) != ERR_OK) {
        printf("%s: %s\n", conf->io_method, err_text());
        free(tile);
        return -1;
    }
    for (int64_t at = 0; at < n_elem; at += TILE)
        tile[n++] = (struct offload_tile){.begin = at, .n = TILE};
    double start = 0;
    clock_t used = 0;
    for (int i = 0; i <= passes; i++) {
        offload_stream(o, tile, n, change, NULL);
        offload_forget(o);
        if (i == 0) {
            sync();
            start = clock_now_s();
            used = clock();
        }
    }
    *cpu_s = (double)(clock() - used) / CLOCKS_PER_SEC;
    sync();
    double s = clock_now_s() - start;
    if (offload_status(o) != ERR_OK)
        printf("%s: %s\n", conf->io_method, err_text());
    offload_destroy(&o);
    free(tile);
    return s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t number(int argc, char **argv, int i, int64_t otherwise)
{
    return argc > i ? strtoll(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER [MIB] [PASSES] [ROUNDS] [BLOCK_BYTES] [QUEUE_DEPTH]\n",
                argv[0]);
        return 2;
    }
    int64_t mib = number(argc, argv, 2, 256);
    int64_t n_elem = (mib << 20) / N_ARRAYS / (int64_t)sizeof(float) / TILE * TILE;
    int passes = (int)number(argc, argv, 3, 4), rounds = (int)number(argc, argv, 4, 3);
    struct offload_conf conf = {.dir = argv[1],
                                .tile_elems = TILE,
                                .read_ahead = true,
                                .write_behind = true,
                                .block_bytes = number(argc, argv, 5, 1 << 20),
                                .queue_depth = (int)number(argc, argv, 6, 8),
                                .overlap_events = true};
    double rate[2][ROUNDS_MAX], bytes = 2.0 * passes * N_ARRAYS * (double)n_elem * sizeof(float);
    rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < 2; i++) {
            conf.io_method = offload_methods[1 + i];
            double cpu_s, s = run(&conf, n_elem, passes, &cpu_s);
            if (s < 0)
                return 1;
            rate[i][r] = bytes / s / 1e6;
            printf("%-9s %6.0f MB/s, %.2f s of %.2f s on a processor\n", conf.io_method, rate[i][r],
                   cpu_s, s);
        }
    for (int i = 0; i < 2; i++)
        qsort(rate[i], (size_t)rounds, sizeof rate[i][0], by_value);
    printf("median: io_uring %.0f MB/s, thread %.0f MB/s, ratio %.2f\n", rate[0][rounds / 2],
           rate[1][rounds / 2], rate[0][rounds / 2] / rate[1][rounds / 2]);
    return 0;
}
