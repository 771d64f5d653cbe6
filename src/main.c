/* Pick a subcommand before anything is started, run it, print the one error, set the status. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef STRETTO_VERSION
#define STRETTO_VERSION "0.1"
#endif

static void print_usage(FILE *to)
{
    fprintf(to, "stretto %s: distributed deep learning from a job file\n\n", STRETTO_VERSION);
    for (const struct command *const *c = command_list; *c; c++)
        fprintf(to, "  stretto %-9s %s\n  %17s %s\n", (*c)->name, (*c)->args, "", (*c)->summary);
    fprintf(to, "\n  stretto COMMAND --help   more about a command\n"
                "  stretto --help SECTION   the keys of a section: job, model, data, strategy, …\n"
                "  stretto --help all       every key there is\n"
                "  stretto --version\n\n"
                "Train on 4 ranks:  mpirun -n 4 stretto train JOB.ini\n"
                "Under Slurm:       srun --mpi=pmix -n 4 stretto train JOB.ini\n\n"
                "Exit status: 0 done; 2 command line or job file; 3 data or checkpoint; 4 memory,\n"
                "disk or device; 5 training diverged; 6 communication; 70 internal; 75 stopped\n"
                "early, saved\n");
}

static int help_section(struct cli *c, const char *name)
{
    const struct section_kind *const *kinds = run_kinds(c->arena);
    const char *names[32] = {0};
    struct text t = {0};
    for (int i = 0; kinds[i]; i++) {
        names[i] = kinds[i]->name;
        if (text_same(name, "all") || text_same(name, kinds[i]->name))
            job_help_kind(kinds[i], &t, c->arena);
    }
    if (!t.s) {
        const char *near = text_nearest(name, names);
        FAIL(ERR_USAGE, "no section [%s]%s%s%s", name, near ? ": did you mean " : "",
             near ? near : "", near ? "?" : "");
    }
    fputs(t.s, stdout);
    text_clear(&t);
    return ERR_OK;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

static const struct command *find_command(const char *word)
{
    for (const struct command *const *c = command_list; *c; c++)
        if (strcmp((*c)->name, word) == 0)
            return *c;
    return NULL;
}

static int unknown_command(const char *word)
{
    const char *names[32] = {0};
    for (int i = 0; command_list[i]; i++)
        names[i] = command_list[i]->name;
    const char *near = text_nearest(word, names);
    FAIL(ERR_USAGE, "unknown command \"%s\"%s%s%s", word, near ? ": did you mean " : "",
         near ? near : ": see stretto --help", near ? "?" : "");
}

static int run_command(struct cli *c, const struct command *cmd, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("stretto %s %s\n\n%s.\n\n%s", cmd->name, cmd->args, cmd->summary, cmd->help);
            return ERR_OK;
        }
    return cmd->run(c, argc, argv);
}

static int dispatch(struct cli *c, int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        FAIL(ERR_USAGE, "no command");
    }
    if (is_help(argv[1])) {
        if (argc > 2)
            return help_section(c, argv[2]);
        print_usage(stdout);
        return ERR_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("stretto %s\n", STRETTO_VERSION);
        return ERR_OK;
    }
    const struct command *cmd = find_command(argv[1]);
    if (cmd)
        return run_command(c, cmd, argc - 1, argv + 1);
    size_t n = strlen(argv[1]);
    if (n > 4 && strcmp(argv[1] + n - 4, ".ini") == 0) /* `stretto JOB.ini` trains */
        return run_command(c, &train_command, argc, argv);
    return unknown_command(argv[1]);
}

/* One rank speaks for all; before MPI runs, the launcher's environment tells which. */
static bool speaks(const struct cli *c)
{
    if (c->world)
        return c->world->rank == 0;
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v)
            return atoi(v) == 0;
    }
    return true;
}

/* A standard descriptor that was closed would become the next file that is opened, and what is
 * printed would go there: into metrics.jsonl, or a checkpoint. */
static void fill_standard_files(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* What did not reach standard output was not done, however well it was computed. */
static int end_output(int rc)
{
    errno = 0;
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (rc == ERR_OK && lost)
        return err_set(ERR_RESOURCE, "standard output could not be written%s%s", errno ? ": " : "",
                       errno ? strerror(errno) : "");
    return rc;
}

/* A launcher ends the job with its first rank that fails: before MPI runs, nobody else may be
 * faster than the one who says why.  Nearly always it ends this wait too. */
static void wait_for_speaker(const struct cli *c)
{
    enum { WAIT_S = 5 };
    if (!c->world)
        sleep(WAIT_S);
}

int main(int argc, char **argv)
{
    fill_standard_files();
    struct cli c = {.arena = arena_create()};
    int rc = end_output(dispatch(&c, argc, argv));
    if (rc != ERR_OK && speaks(&c))
        fprintf(stderr, "stretto: %s: %s\n", rc == ERR_STOPPED ? "stopped" : "error", err_text());
    else if (rc != ERR_OK)
        wait_for_speaker(&c);
    comm_close(&c.world);
    arena_destroy(&c.arena);
    return rc;
}
