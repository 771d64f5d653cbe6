/* stretto plan: bytes of every kind on one rank and bytes sent in a step, for every strategy, from
 * the plan alone: no mpirun, no memory for weights, any number of ranks. */
#include "cli/cli.h"

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

/* One strategy's line.  group: ranks that share a copy; node: ranks of a node. */
static void print_row(const struct run *r, const struct policy *policy, int64_t group, int64_t node,
                      const struct plan_memory *m, struct text *t)
{
    struct arena *a = arena_create();
    bool mine = text_same(policy->name, r->strategy.policy->name);
    struct wrap wrap = r->strategy.wrap;
    if (!mine) /* what the job's own plugin keeps whole is no other's way */
        wrap.persist_elems = wrap.reuse_elems = 0;
    const struct policy *row = mine ? r->strategy.policy : policy; /* no_sync is the job's own */
    const struct plan *p = plan_make(r->model, row, &wrap, (int)group, a);
    struct shard_memory s;
    struct shard_traffic x;
    struct shard_conf conf = r->shard;
    int rank = largest_rank(p), here = (int)(node < group ? node : group);
    run_share_node(r, here, here, &conf);
    shard_measure(p, r->model, &conf, rank, &s);
    shard_count_traffic(p, r->model, &conf, r->batching.accumulation, r->strategy.n_ranks / group,
                        &x);
    size_t activations = m->tape_bytes + m->frame_bytes + m->scratch_bytes;
    text_printf(t, "%c %-19s", mine ? '*' : ' ', policy->name);
    column(t, (double)(s.master + s.copy));
    column(t, (double)s.grad);
    column(t, (double)s.state);
    column(t, (double)(s.gathered + s.unit_grads + s.scratch));
    column(t, (double)activations);
    size_t state = shard_bytes(p, r->model, &conf, rank);
    column(t, (double)(state + activations));
    column(t, (double)s.node);
    column(t, (double)x.sent);
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
    struct plan_memory m;
    struct text t = {0};
    c->world = comm_self();
    TRY(cli_load_job(c, argv[1], argc - 2, (const char *const *)argv + 2, &job));
    TRY(run_setup(job, c->world, RUN_TRAIN, (int)conf.ranks, NULL, c->arena, &run));
    TRY(cli_open_device(c, &run, &dev));
    const struct plan_case one = {.B = run.batching.max_local,
                                  .T = run.model->shape.T,
                                  .kind = PASS_TRAIN,
                                  .compute = run.shard.compute};
    plan_measure(run.model, dev, &one, &m);
    text_printf(&t,
                "%s: %lld parameters in %d units; %lld ranks on %lld node%s, compute %s, %lld "
                "samples a rank and micro-batch\n",
                run.conf.family->name, (long long)run.plan->n_params, run.plan->n_units,
                (long long)conf.ranks, (long long)conf.nodes, conf.nodes == 1 ? "" : "s",
                dtype_name(run.shard.compute), (long long)run.batching.max_local);
    text_printf(&t, "%-21s %10s %10s %10s %10s %10s %10s %10s %10s\n", "  bytes of one rank",
                "weights", "gradients", "moments", "units", "activation", "together", "+ a node",
                "sent/step");
    for (const struct policy *p = policy_list; p->name; p++) {
        bool hybrid = p->group == GROUP_NODE;
        if (p->group == GROUP_SELF && !p->averages && conf.ranks > 1)
            continue;
        int64_t node = conf.ranks / conf.nodes;
        int64_t group = hybrid ? node : p->averages ? 1 : conf.ranks;
        print_row(&run, p, group, node, &m, &t);
    }
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
    .help = "Bytes are those of the rank that holds most.  weights: master and compute copy.\n"
            "units: gathered units, their gradients, scratch of sums.\n"
            "+ a node: node memory that its ranks have once, beside their own.\n"
            "sent/step: bytes that a rank sends in one optimizer step, gathers and sums.\n"
            "* is the job's own strategy.  Needs no mpirun.\n",
    .run = plan,
};
