/* stretto generate: text from a checkpoint.  It has the vocabulary: no data file is needed. */
#include "cli/cli.h"

#include "train/sample.h"
#include <stdio.h>

static void show(const char *bytes, size_t n_bytes)
{
    fwrite(bytes, 1, n_bytes, stdout);
    fflush(stdout);
}

static int generate(struct cli *c, int argc, char **argv)
{
    struct sample_conf conf = {0};
    TRY(cli_take_options(c, &argc, argv, sample_opts, &conf));
    if (argc < 2)
        FAIL(ERR_USAGE, "no checkpoint: say stretto generate FOLDER --prompt TEXT");
    struct ckpt *k;
    struct job *job;
    struct run run;
    struct device *dev;
    struct engine *e;
    TRY(cli_find_checkpoint(c, argv[1], &k));
    TRY(cli_load_stored_job(c, k, argc - 2, (const char *const *)argv + 2, &job));
    TRY_ALL(c->world, run_setup(job, c->world, RUN_GENERATE, 0, k, c->arena, &run));
    TRY(cli_open_device(c, &run, &dev));
    TRY(engine_create(&run, dev, &e));
    struct text t = {0};
    int rc = sample_text(e, &conf, &t, c->world->rank == 0 ? show : NULL);
    if (rc == ERR_OK)
        comm_print(c->world, "%s", "");
    text_clear(&t);
    engine_destroy(&e);
    device_close(&dev);
    run_clear(&run);
    return comm_agree(c->world, rc);
}

const struct command generate_command = {
    .name = "generate",
    .args = "FOLDER|JOB.ini [--prompt TEXT] [--tokens N] [--temperature X] [--top_k K] [--seed S]",
    .summary = "text written by a checkpoint's model",
    .help = "FOLDER is a run's output_dir (its newest checkpoint), one of its step folders, or\n"
            "its `latest`.  No data file is needed.\n",
    .run = generate,
};
