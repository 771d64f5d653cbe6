/* stretto train JOB.ini: the file to read first.  Job -> run -> device -> loop. */
#include "cli/cli.h"

#include "train/convert.h"
#include "train/loop.h"
#include "train/output.h"
#include "train/stop.h"
#include <stdio.h>

static int train(struct cli *c, int argc, char **argv)
{
    if (argc < 2)
        FAIL(ERR_USAGE, "no job file: say stretto train JOB.ini (jobs/quickstart.ini is one)");
    stop_install();
    struct job *job;
    struct ckpt *from;
    struct run run;
    struct device *dev;
    TRY(cli_open_world(c));
    TRY(cli_load_job(c, argv[1], argc - 2, (const char *const *)argv + 2, &job));
    TRY(output_find(job, c->world, c->arena, &from));
    TRY_ALL(c->world, run_setup(job, c->world, RUN_TRAIN, 0, from, c->arena, &run));
    TRY(cli_open_device(c, &run, &dev));
    struct text resolved = {0}, about = {0};
    job_print_resolved(job, &resolved);
    run_describe(&run, dev, &about);
    strategy_notes(&run.conf, &run.strategy, &about);
    if (c->world->rank == 0)
        fputs(about.s, stdout);
    fflush(stdout);
    int rc = loop_train(&run, dev, resolved.s);
    if (rc == ERR_OK)
        rc = convert_final(&run);
    text_clear(&resolved);
    text_clear(&about);
    device_close(&dev);
    run_clear(&run);
    return rc;
}

const struct command train_command = {
    .name = "train",
    .args = "JOB.ini [section.key=value …]",
    .summary = "train what a job file describes; goes on from its newest checkpoint",
    .help = "Start it alone, or on N ranks with mpirun -n N or srun --mpi=pmix -n N.\n"
            "section.key=value replaces a key of the file: stretto train a.ini model.n_layer=2.\n"
            "Run again, it resumes from the newest complete checkpoint of job.output_dir, on any\n"
            "number of ranks.\n",
    .run = train,
};
