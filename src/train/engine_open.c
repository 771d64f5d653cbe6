/* What an engine holds: communicators, shards, memory for activations, data. */
#include "train/engine.h"

#include "base/memory.h"
#include "train/init.h"
#include "train/save.h"
#include <stdlib.h>

static int take(struct engine *e, size_t n_bytes, void **out)
{
    *out = e->dev->mem->alloc(n_bytes ? n_bytes : 1);
    if (!*out)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of activations on rank %d", n_bytes,
             e->run->comm->rank);
    return ERR_OK;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Between a step's update and the next backward gradients hold nothing: whatever runs then may lie
 * there.  Evaluation and sampling have room with what a cut may waste. */
static void borrow_gradients(struct engine *e, size_t train, size_t others)
{
    const struct run *r = e->run;
    const struct plan_case c = {.B = r->batching.max_local,
                                .T = r->model->shape.T,
                                .kind = PASS_TRAIN,
                                .compute = r->shard.compute};
    struct lend l;
    if (r->purpose != RUN_TRAIN || !lend_can(r->plan->policy, &r->shard, r->batching.accumulation))
        return;
    lend_plan(r->plan, r->model, e->dev, &c, train, &l);
    if (l.more_bytes > 0 && 2 * others <= l.own_bytes + l.more_bytes) {
        e->lend = l;
        e->tape_bytes = l.own_bytes;
    }
}

static void measure_activations(struct engine *e)
{
    const struct run *r = e->run;
    struct plan_memory t, v, g;
    struct plan_case c = {.B = r->batching.max_local,
                          .T = r->model->shape.T,
                          .kind = PASS_TRAIN,
                          .compute = r->shard.compute};
    plan_measure(r->model, e->dev, &c, &t);
    c.kind = PASS_EVAL;
    plan_measure(r->model, e->dev, &c, &v);
    c.kind = PASS_LOGITS;
    c.B = 1;
    plan_measure(r->model, e->dev, &c, &g);
    size_t others = larger(v.tape_bytes, g.tape_bytes);
    e->tape_bytes = larger(t.tape_bytes, others);
    borrow_gradients(e, t.tape_bytes, others);
    e->frame_bytes = larger(larger(t.frame_bytes, v.frame_bytes), g.frame_bytes);
    e->scratch_bytes = larger(larger(t.scratch_bytes, v.scratch_bytes), g.scratch_bytes);
}

/* The kernel hands out memory that it does not have, and kills whoever touches it. */
static int check_memory(const struct engine *e)
{
    int n = e->run->comm->node_size;
    double here = (double)engine_bytes(e), most = (double)memory_most();
    char need[32], have[32];
    if (e->run->purpose != RUN_TRAIN || here * n <= most)
        return ERR_OK;
    FAIL(ERR_RESOURCE,
         "no memory for %d rank%s of %s on this node, which has %s left: a smaller batch_size or "
         "block_size, more nodes, or a strategy that shards; stretto plan shows what each takes",
         n, n == 1 ? "" : "s", text_bytes(need, here), text_bytes(have, most));
}

static int alloc_activations(struct engine *e)
{
    TRY(take(e, e->tape_bytes, &e->tape_memory));
    TRY(take(e, e->scratch_bytes, &e->scratch_memory));
    e->frame_memory = malloc(e->frame_bytes + 1);
    if (!e->frame_memory)
        FAIL(ERR_RESOURCE, "no memory for %zu bytes of frames", e->frame_bytes);
    stack_init(&e->tape, e->tape_memory, e->tape_bytes);
    stack_init(&e->frames, e->frame_memory, e->frame_bytes);
    stack_init(&e->stream.scratch, e->scratch_memory, e->scratch_bytes);
    return ERR_OK;
}

/* A lane has room for a few steps of a large model; older spans give way. */
static int begin_trace(struct engine *e)
{
    enum { N_SPANS = 1 << 16 };
    if (!e->run->conf.main.profile || e->run->purpose != RUN_TRAIN)
        return ERR_OK;
    TRY(trace_create(N_SPANS, &e->trace));
    TRY(trace_attach(e->trace, e->run->model->root, e->group));
    trace_attach_comm(e->trace, e->replicas);
    trace_attach_comm(e->trace, e->second);
    return ERR_OK;
}

static int alloc_all(struct engine *e)
{
    struct run *r = e->run;
    TRY(err_fault(r->comm->rank, "memory"));
    e->stream.dev = e->dev;
    e->stream.k = device_kernels(e->dev, r->shard.compute);
    if (!e->stream.k)
        FAIL(ERR_RESOURCE, "the device computes no %s", dtype_name(r->shard.compute));
    measure_activations(e);
    TRY(check_memory(e));
    TRY(alloc_activations(e));
    const struct shard_ranks ranks = {e->group, e->replicas, e->second, e->node};
    TRY(shard_create(r->plan, r->model, &r->shard, &ranks, &e->stream, &e->shard));
    if (e->lend.more_bytes > 0)
        stack_extend(&e->tape, e->lend.own_bytes, e->shard->grad + e->lend.first,
                     e->lend.more_bytes);
    e->row_step = calloc((size_t)r->plan->n_rows + 1, sizeof *e->row_step);
    if (!e->row_step)
        FAIL(ERR_RESOURCE, "no memory for the steps of %d tensors", r->plan->n_rows);
    enum data_part part;
    const struct data *source = run_eval_source(r, &part);
    uint64_t seed = (uint64_t)r->conf.model.seed;
    int64_t T = r->model->shape.T, B = r->batching.max_local;
    TRY(begin_trace(e));
    TRY(feed_init(&e->train, r->data, DATA_TRAIN, seed, T, B));
    TRY(feed_init(&e->eval, source, part, seed, T, B));
    e->eval.sampler.shuffle = false;
    return ERR_OK;
}

void engine_take_scale(struct engine *e, const struct loss_scale *scale)
{
    double fixed = e->run->conf.strategy.scale.loss_scale;
    e->scale = *scale;
    e->has_scale = true; /* kept for a later run, even where this one computes in another dtype */
    if (fixed > 0)
        e->scale.scale = fixed;
}

static int first_weights(struct engine *e)
{
    struct run *r = e->run;
    e->scale = loss_scale_first(&r->conf.strategy.scale);
    e->has_scale = r->shard.compute == DTYPE_F16;
    if (r->from)
        return r->purpose == RUN_TRAIN ? save_load(e, r->from) : save_load_weights(e, r->from);
    shard_init(e->shard, (uint64_t)r->conf.model.seed);
    return r->init ? init_load(e) : ERR_OK;
}

/* Communicators of the ranks that share a copy of the model, and of those that hold the same part.
 * Collective on run->comm. */
static void split_ranks(struct engine *e)
{
    struct comm *world = e->run->comm;
    int size = e->run->strategy.group_size;
    if (size == world->size) {
        e->group = world;
        return;
    }
    e->group = comm_split(world, world->rank / size, world->rank);
    e->replicas = comm_split(world, world->rank % size, world->rank);
}

/* Decide who shares memory, and say it where that is not what one rank could tell.
 * Collective on run->comm. */
static void settle_nodes(struct engine *e, const struct node_shape *n)
{
    struct run *r = e->run;
    struct shard_conf told = r->shard;
    struct text t = {0};
    run_share_node(r, n, &r->shard);
    if (told.second_size != r->shard.second_size || told.node_copy != r->shard.node_copy)
        run_note_second(r, &t);
    if (t.s)
        comm_print(r->comm, "%.*s", (int)t.n_bytes - 1, t.s);
    text_clear(&t);
}

static void find_nodes(const struct engine *e, struct node_shape *out)
{
    struct comm *world = e->run->comm;
    const struct comm *g = e->group;
    int64_t n[3] = {g->node_size, -g->node_size, g->rank / g->node_size * g->node_size != g->node};
    world->ops->max_i64(world, n, 3);
    *out = (struct node_shape){
        .fewest = (int)-n[1], .most = (int)n[0], .in_order = n[0] == -n[1] && n[2] == 0};
}

/* Put the group on node memory.  Where the ranks of a node cannot open each other's memory, auto
 * goes on without and says so.  Collective on run->comm. */
static int share_memory(struct engine *e)
{
    struct run *r = e->run;
    struct shard_memory z;
    struct comm *over = NULL;
    struct node_shape shape;
    find_nodes(e, &shape);
    settle_nodes(e, &shape);
    if (!r->shard.node_memory)
        return ERR_OK;
    shard_measure(r->plan, r->model, &r->shard, e->group->rank, &z);
    int rc = comm_open_node(e->group, NULL, z.node, z.node_own, &over, &e->node);
    rc = comm_agree(r->comm, rc);
    if (rc != ERR_OK && over)
        comm_close(&over);
    if (rc != ERR_OK)
        e->node = NULL;
    if (rc == ERR_COMM && r->conf.strategy.node_memory == NODE_MEMORY_AUTO) {
        comm_print(r->comm, "note: no node memory, messages instead: %s", err_text());
        settle_nodes(e, &(struct node_shape){.fewest = 1, .most = 1, .in_order = true});
        return ERR_OK;
    }
    TRY(rc);
    e->below = e->group;
    e->group = over;
    return ERR_OK;
}

/* Neighbours that keep what leaves after forward.  Collective on run->comm. */
static void split_second(struct engine *e)
{
    struct comm *c = e->below ? e->below : e->group;
    int k = e->run->shard.second_size;
    if (k == 0)
        return;
    e->second = comm_split(c, c->rank / k, c->rank);
    if (!e->node)
        return;
    e->second_below = e->second;
    e->second = comm_share_node(e->second_below, e->node);
}

int engine_create(struct run *run, struct device *dev, struct engine **out)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        FATAL("out of memory");
    e->run = run;
    e->dev = dev;
    split_ranks(e);
    int rc = share_memory(e);
    if (rc == ERR_OK)
        split_second(e);
    if (rc == ERR_OK)
        rc = comm_agree(run->comm, alloc_all(e));
    if (rc == ERR_OK)
        rc = comm_agree(run->comm, first_weights(e));
    if (rc == ERR_OK)
        shard_refresh(e->shard);
    if (rc != ERR_OK) {
        engine_destroy(&e);
        return rc;
    }
    engine_say_disk(e);
    *out = e;
    return ERR_OK;
}

size_t engine_bytes(const struct engine *e)
{
    const struct run *r = e->run;
    struct shard_memory z;
    shard_measure(r->plan, r->model, &r->shard, e->group->rank, &z);
    return shard_bytes(r->plan, r->model, &r->shard, e->group->rank) - z.node_own + e->tape_bytes +
           e->frame_bytes + e->scratch_bytes;
}

size_t engine_node_bytes(const struct engine *e)
{
    const struct run *r = e->run;
    struct shard_memory z;
    if (!e->node)
        return 0;
    shard_measure(r->plan, r->model, &r->shard, e->group->rank, &z);
    return z.node + z.node_own * (size_t)e->group->node_size;
}

void engine_destroy(struct engine **engine)
{
    struct engine *e = *engine;
    if (!e)
        return;
    trace_destroy(&e->trace);
    shard_destroy(&e->shard);
    free(e->row_step);
    comm_close(&e->replicas);
    comm_close(&e->second);
    comm_close(&e->second_below);
    if (e->below) {
        comm_close(&e->group);
        e->group = e->below;
    }
    if (e->group != e->run->comm)
        comm_close(&e->group);
    feed_clear(&e->train);
    feed_clear(&e->eval);
    if (e->tape_memory)
        e->dev->mem->free(e->tape_memory, e->tape_bytes ? e->tape_bytes : 1);
    if (e->scratch_memory)
        e->dev->mem->free(e->scratch_memory, e->scratch_bytes ? e->scratch_bytes : 1);
    free(e->frame_memory);
    free(e);
    *engine = NULL;
}
