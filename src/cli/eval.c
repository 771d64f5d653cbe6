/* stretto eval: the loss of a checkpoint on its job's evaluation samples. */
#include "cli/cli.h"

#include "train/engine.h"

static int evaluate(struct cli *c, int argc, char **argv)
{
    if (argc < 2)
        FAIL(ERR_USAGE, "no checkpoint: say stretto eval FOLDER (a run's folder or one of its "
                        "steps) or JOB.ini");
    struct ckpt *k;
    struct job *job;
    struct run run;
    struct device *dev;
    struct engine *e;
    struct eval_report v;
    TRY(cli_find_checkpoint(c, argv[1], &k));
    TRY(cli_load_stored_job(c, k, argc - 2, (const char *const *)argv + 2, &job));
    int64_t step = ckpt_step(k);
    TRY_ALL(c->world, run_setup(job, c->world, RUN_EVAL, 0, k, c->arena, &run));
    enum data_part part;
    const struct data *d = run_eval_source(&run, &part);
    if (d->n_samples[part] < 1)
        return job_error(job, "data", run.conf.data.name, "split",
                         "leaves no samples to evaluate on");
    TRY(cli_open_device(c, &run, &dev));
    TRY(engine_create(&run, dev, &e));
    engine_eval(e, run.conf.eval.batches, &v);
    if (isnan(v.accuracy))
        comm_print(c->world, "step %lld: loss %.6f over %lld targets", (long long)step, v.loss,
                   (long long)v.n_valid);
    else
        comm_print(c->world, "step %lld: loss %.6f, accuracy %.2f %% of %lld", (long long)step,
                   v.loss, 100 * v.accuracy, (long long)v.n_valid);
    engine_destroy(&e);
    device_close(&dev);
    run_clear(&run);
    return ERR_OK;
}

const struct command eval_command = {
    .name = "eval",
    .args = "FOLDER|JOB.ini [section.key=value …]",
    .summary = "loss (and accuracy) of a checkpoint on the held-out samples",
    .help = "FOLDER is a run's output_dir (its newest checkpoint), one of its step folders, or\n"
            "its `latest`.  The job comes from the checkpoint; section.key=value replaces a key.\n",
    .run = evaluate,
};
