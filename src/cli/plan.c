/* stretto plan: bytes of every kind on one rank and bytes sent in a step, for every strategy, from
 * the plan alone: no mpirun, no memory for weights, any number of ranks. */
#include "cli/cli.h"

#include "parallel/lend.h"
#include "train/saver.h"
#include <stdio.h>
#include <string.h>

struct plan_conf {
    int64_t ranks, nodes;
};

static const struct opt plan_opts[] = {
    I64(plan_conf, ranks, "1", 1, 1e6, "ranks that the job is to be started on"),
    I64(plan_conf, nodes, "1", 1, 1e6, "nodes that they are spread over evenly"),
    {.type = OPT_END},
};

static void column(struct text *t, double n_bytes)
{
    char buf[32];
    text_printf(t, " %10s", text_bytes(buf, n_bytes));
}

/* The rank that owns most: parts are cut at blocks, so they are not all alike. */
static int largest_rank(const struct plan *p)
{
    int best = 0;
    for (int r = 1; r < p->size; r++)
        if (plan_own_elems(p, r) > plan_own_elems(p, best))
            best = r;
    return best;
}

static const char *const columns[] = {"weights", "master",     "gradients", "moments",
                                      "extra",   "activation", "snapshots", "host",
                                      "node",    "disk",       "sent/step", "link/step"};

static void print_head(struct text *t)
{
    text_printf(t, "%-21s", "  bytes of one rank");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        text_printf(t, " %10s", columns[i]);
    text_printf(t, "\n");
}

/* Ranks that share a copy of what is sharded under a policy. */
static int64_t group_of(const struct policy *p, const struct plan_conf *conf)
{
    return p->group == GROUP_NODE ? conf->ranks / conf->nodes : p->averages ? 1 : conf->ranks;
}

/* What saves behind the training copy at the most: as many snapshots as the job may hold. */
static double snapshot_bytes(const struct run *r, const struct shard_conf *conf,
                             const struct plan *p, int rank)
{
    struct run view = *r;
    view.shard = *conf;
    double n_elem =
        (double)plan_own_elems(p, rank) + (double)conf->n_states * (double)plan_own_train(p, rank);
    return saver_most_snapshots(&view) * n_elem * (double)sizeof(float);
}

/* One strategy's line. */
static void print_row(const struct run *r, const struct policy *policy,
                      const struct plan_conf *world, const struct device *dev,
                      const struct plan_case *one, struct text *t)
{
    struct arena *a = arena_create();
    struct plan_memory m;
    bool mine = text_same(policy->name, r->strategy.policy->name);
    int64_t node = world->ranks / world->nodes;
    bool given = mine && r->strategy.group_size != r->strategy.n_ranks;
    int64_t group = given ? r->strategy.group_size : group_of(policy, world);
    struct wrap wrap = r->strategy.wrap;
    struct shard_conf conf = r->shard;
    struct run view = *r;
    view.strategy.group_size = (int)group;
    if (!mine) { /* what the job's own plugin keeps, whole, for backward or on disk */
        wrap.persist_elems = wrap.reuse_elems = 0;
        conf.offload = (struct offload_conf){.dir = NULL};
        view.strategy.second_size = 0;
    }
    const struct policy *row = mine ? r->strategy.policy : policy; /* no_sync is the job's own */
    const struct plan *p = plan_make(r->model, row, &wrap, (int)group, a);
    struct shard_memory s;
    struct shard_traffic x;
    int rank = largest_rank(p), here = (int)(node < group ? node : group);
    run_share_node(&view, &(struct node_shape){here, here, true}, &conf);
    shard_measure(p, r->model, &conf, rank, &s);
    const struct shard_world w = {r->batching.accumulation, r->strategy.n_ranks / group, node};
    shard_count_traffic(p, r->model, &conf, &w, &x);
    plan_measure(r->model, dev, one, &m);
    struct lend l = {.own_bytes = m.tape_bytes};
    if (lend_can(row, &conf, r->batching.accumulation))
        lend_plan(p, r->model, dev, one, m.tape_bytes, &l);
    double activations = (double)(l.own_bytes + m.frame_bytes + m.scratch_bytes);
    double snapshots = snapshot_bytes(r, &conf, p, rank);
    double host = (double)shard_bytes(p, r->model, &conf, rank) + activations + snapshots +
                  PLAN_LIBRARY_BYTES;
    text_printf(t, "%c %-19s", mine ? '*' : ' ', policy->name);
    column(t, (double)s.copy);
    column(t, (double)s.master);
    column(t, (double)s.grad);
    column(t, (double)s.state);
    column(t, (double)(s.gathered + s.second + s.unit_grads + s.scratch + s.swap + s.hook));
    column(t, activations);
    column(t, snapshots);
    column(t, host);
    column(t, host * (double)node + (double)s.node * (double)(node / here));
    column(t, (double)s.disk);
    column(t, x.sent);
    column(t, x.left);
    text_printf(t, "\n");
    arena_destroy(&a);
}

static int plan(struct cli *c, int argc, char **argv)
{
    struct plan_conf conf = {0};
    TRY(cli_take_options(c, &argc, argv, plan_opts, &conf));
    if (argc < 2)
        FAIL(ERR_USAGE, "no job file: say stretto plan JOB.ini --ranks N");
    if (conf.ranks % conf.nodes != 0)
        FAIL(ERR_USAGE, "--nodes %lld does not divide --ranks %lld", (long long)conf.nodes,
             (long long)conf.ranks);
    struct job *job;
    struct run run;
    struct device *dev;
    struct text t = {0};
    TRY(cli_alone(c, argv[0]));
    TRY(cli_load_job(c, argv[1], argc - 2, (const char *const *)argv + 2, &job));
    TRY(run_setup(job, c->world, RUN_TRAIN, (int)conf.ranks, NULL, c->arena, &run));
    TRY(cli_open_device(c, &run, &dev));
    const struct plan_case one = {.B = run.batching.max_local,
                                  .T = run.model->shape.T,
                                  .kind = PASS_TRAIN,
                                  .compute = run.shard.compute};
    text_printf(&t,
                "%s: %lld parameters in %d units; %lld ranks on %lld node%s, compute %s, %lld "
                "samples a rank and micro-batch\n",
                run.conf.family->name, (long long)run.plan->n_params, run.plan->n_units,
                (long long)conf.ranks, (long long)conf.nodes, conf.nodes == 1 ? "" : "s",
                dtype_name(run.shard.compute), (long long)run.batching.max_local);
    print_head(&t);
    for (const struct policy *p = policy_list; p->name; p++)
        if (p->group != GROUP_SELF || p->averages || conf.ranks == 1)
            print_row(&run, p, &conf, dev, &one, &t);
    fputs(t.s, stdout);
    text_clear(&t);
    device_close(&dev);
    run_clear(&run);
    return ERR_OK;
}

const struct command plan_command = {
    .name = "plan",
    .args = "JOB.ini --ranks N [--nodes M] [section.key=value …]",
    .summary = "memory and traffic of one rank under every strategy; allocates nothing",
    .help =
        "Bytes are those of the rank that holds most.  weights: whole copies in the compute\n"
        "dtype; 0 where layers read the fp32 master, gather it, or share a node's.  extra:\n"
        "what comes and goes: gathered units, parts of them that are kept for backward,\n"
        "gradients of units, sums, tiles of what is on disk.  activation: where a step is one\n"
        "micro-batch and gradients are whole, only what cannot lie in their memory until\n"
        "backward comes to them.\n"
        "snapshots: copies for saves behind the training, as many as the job may hold where there\n"
        "is room; checkpoint.async = false needs none.\n"
        "host: memory of the rank, all of these and 8 MiB that libraries keep; node: of a node's\n"
        "ranks together, with what they have once.  sent/step: bytes that a rank sends in an\n"
        "optimizer step; link/step: that leave a node in it, where neighbouring ranks share one.\n"
        "* is the job's own strategy.  Needs no mpirun.\n",
    .run = plan,
};
