/* Subcommands: glue from words to the levels below.  One file each, one line in command_list.c. */
#pragma once
#include "train/setup.h"

struct cli {
    struct arena *arena;
    struct comm *world; /* NULL until a command opens it; main.c closes it */
};

struct command {
    const char *name;
    const char *args;                                 /* as in a usage line */
    const char *summary;                              /* one line */
    const char *help;                                 /* paragraphs for `stretto NAME --help` */
    int (*run)(struct cli *c, int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct command *const command_list[]; /* NULL-terminated */
extern const struct command train_command, eval_command, generate_command, inspect_command,
    check_command, plan_command, convert_command, verify_command;

/* Open the launcher's world once.  Collective on all ranks of the launcher. */
int cli_open_world(struct cli *c);

/* A world of this process alone, for a command that is not meant for several: ERR_USAGE where a
 * launcher has started more, who would all write or print the same.  Local. */
int cli_alone(struct cli *c, const char *command);

/* The job file argv[1] with the overrides behind it, read by rank 0, checked against all tables, on
 * every rank.  *text gets the resolved job once run_setup has read it.  Collective on c->world. */
int cli_load_job(struct cli *c, const char *path, int n_overrides, const char *const *overrides,
                 struct job **out);

/* The job that a checkpoint holds, with overrides.  Collective on c->world. */
int cli_load_stored_job(struct cli *c, const struct ckpt *k, int n_overrides,
                        const char *const *overrides, struct job **out);

/* The output folder of a job file.  Collective on c->world. */
int cli_output_of(struct cli *c, const char *path, const char **output_dir);

/* The checkpoint that what names (run folder, step folder, latest, or a job file: its output_dir).
 * Collective on c->world. */
int cli_find_checkpoint(struct cli *c, const char *what, struct ckpt **out);

/* The device that the job asks for, with an instruction set that all ranks have.
 * Collective on c->world. */
int cli_open_device(struct cli *c, const struct run *r, struct device **out);

/* Split "--name value" and "--name=value" off into conf by opts ("--name" alone sets a yes or no);
 * the rest stays in argv, *argc of it.  ERR_USAGE names an unknown option.  Local. */
int cli_take_options(struct cli *c, int *argc, char **argv, const struct opt *opts, void *conf);
