/* What several subcommands need. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

int cli_open_world(struct cli *c)
{
    return c->world ? ERR_OK : comm_open_world(&c->world);
}

int cli_alone(struct cli *c, const char *command)
{
    int n_ranks;
    TRY(comm_launched(&n_ranks));
    if (n_ranks > 1)
        FAIL(ERR_USAGE,
             "stretto %s is one process, and %d were started: say it without mpirun "
             "and srun",
             command, n_ranks);
    c->world = comm_self();
    return ERR_OK;
}

/* Rank 0's entries to everybody, then the same checks everywhere. */
static int share_job(struct cli *c, int rc, struct job **j)
{
    struct comm *w = c->world;
    TRY_ALL(w, rc);
    char *bytes = NULL;
    size_t n_bytes = 0;
    if (w->rank == 0)
        job_pack(*j, &bytes, &n_bytes);
    comm_share_bytes(w, &bytes, &n_bytes);
    if (w->rank != 0)
        *j = job_unpack(bytes, n_bytes, c->arena);
    free(bytes);
    return comm_agree(w, job_check(*j, run_kinds(c->arena)));
}

int cli_load_job(struct cli *c, const char *path, int n_overrides, const char *const *overrides,
                 struct job **out)
{
    TRY(cli_open_world(c));
    int rc = ERR_OK;
    if (c->world->rank == 0)
        rc = job_load(path, n_overrides, overrides, run_kinds(c->arena), c->arena, out);
    return share_job(c, rc, out);
}

int cli_load_stored_job(struct cli *c, const struct ckpt *k, int n_overrides,
                        const char *const *overrides, struct job **out)
{
    const char *text, *name = arena_printf(c->arena, "%s/manifest.json", ckpt_dir(k));
    int rc = json_get_string(ckpt_meta(k), "job", &text);
    if (rc == ERR_OK && c->world->rank == 0)
        rc = job_parse(name, text, strlen(text), n_overrides, overrides, run_kinds(c->arena),
                       c->arena, out);
    return share_job(c, rc, out);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

int cli_output_of(struct cli *c, const char *path, const char **output_dir)
{
    struct job *j;
    struct job_conf conf;
    TRY(cli_load_job(c, path, 0, NULL, &j));
    TRY(run_conf_job(j, &conf));
    *output_dir = conf.output_dir;
    return ERR_OK;
}

int cli_find_checkpoint(struct cli *c, const char *what, struct ckpt **out)
{
    TRY(cli_open_world(c));
    if (ends_with(what, ".ini"))
        TRY(cli_output_of(c, what, &what));
    TRY(ckpt_open_found(c->world, what, out));
    if (!*out)
        FAIL(ERR_DATA, "%s holds no complete checkpoint", what);
    return ERR_OK;
}

int cli_open_device(struct cli *c, const struct run *r, struct device **out)
{
    int64_t isa = -device_isa_best();
    c->world->ops->max_i64(c->world, &isa, 1);
    int rc = device_open_cpu(run_threads(&r->conf, c->world), (int)-isa, run_matmul(&r->conf), out);
    return comm_agree(c->world, rc);
}

int cli_take_options(struct cli *c, int *argc, char **argv, const struct opt *opts, void *conf)
{
    for (const struct opt *o = opts; o->type != OPT_END; o++)
        if (o->dflt)
            TRY(opt_parse(o, o->dflt, conf, c->arena));
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            argv[kept++] = argv[i];
            continue;
        }
        const char *value = strchr(argv[i], '=');
        size_t n = value ? (size_t)(value - argv[i]) - 2 : strlen(argv[i]) - 2;
        const char *key = arena_strndup(c->arena, argv[i] + 2, n);
        const struct opt *o = opt_find(opts, key);
        if (!o)
            FAIL(ERR_USAGE, "unknown option --%s: see stretto %s --help", key, argv[0]);
        if (o->type == OPT_BOOL && !value)
            value = "=true";
        value = value ? value + 1 : argv[++i];
        if (i >= *argc)
            FAIL(ERR_USAGE, "--%s needs a value: %s", key, opt_allowed(o, c->arena));
        if (opt_parse(o, value, conf, c->arena) != ERR_OK) {
            err_prefix("--%s %s", key, value);
            return ERR_USAGE;
        }
    }
    *argc = kept;
    return ERR_OK;
}
