/* stretto check: everything that train does before it allocates, and nothing behind it. */
#include "cli/cli.h"

#include "train/output.h"
#include <stdio.h>
#include <string.h>

struct check_conf {
    int64_t ranks;
};

static const struct opt check_opts[] = {
    I64(check_conf, ranks, "1", 1, 1e6, "ranks that the job is to be started on"),
    {.type = OPT_END},
};

static int check(struct cli *c, int argc, char **argv)
{
    struct check_conf conf = {0};
    TRY(cli_take_options(c, &argc, argv, check_opts, &conf));
    if (argc < 2)
        FAIL(ERR_USAGE, "no job file: say stretto check JOB.ini");
    struct job *job;
    struct ckpt *from;
    struct run run;
    struct device *dev;
    TRY(cli_alone(c, argv[0]));
    TRY(cli_load_job(c, argv[1], argc - 2, (const char *const *)argv + 2, &job));
    TRY(output_find(job, c->world, c->arena, &from));
    TRY(run_setup(job, c->world, RUN_TRAIN, (int)conf.ranks, from, c->arena, &run));
    TRY(cli_open_device(c, &run, &dev));
    struct text t = {0};
    job_print_resolved(job, &t);
    text_printf(&t, "\n# ");
    run_describe(&run, dev, &t);
    strategy_notes(&run.conf, &run.strategy, &t);
    fputs(t.s, stdout);
    text_clear(&t);
    device_close(&dev);
    run_clear(&run);
    return ERR_OK;
}

const struct command check_command = {
    .name = "check",
    .args = "JOB.ini [--ranks N] [section.key=value …]",
    .summary = "check a job file, its data and its checkpoint; train nothing, write nothing",
    .help = "Prints the job with every default filled in, then what would run on N ranks.\n"
            "Needs no mpirun.\n",
    .run = check,
};
