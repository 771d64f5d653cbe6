/* What a person hears of arrays on disk. */
#include "train/engine.h"

#include "base/text.h"
#include <stdio.h>
#include <string.h>

/* How the lowest rank that differs from rank 0 reads and writes, if one does.  Collective. */
static void say_others(struct comm *c, const struct text *mine)
{
    char first[ERR_TEXT_BYTES] = "", other[ERR_TEXT_BYTES] = "";
    snprintf(other, sizeof other, "%s", mine->s);
    if (c->rank == 0)
        memcpy(first, other, sizeof first);
    c->ops->broadcast(c, first, sizeof first, 0);
    int64_t left = strcmp(first, other) != 0 ? c->size - c->rank : 0;
    c->ops->max_i64(c, &left, 1);
    if (left == 0)
        return;
    int rank = c->size - (int)left;
    c->ops->broadcast(c, other, sizeof other, rank);
    comm_print(c, "note: not all ranks read and write alike: rank %d by %s", rank, other);
}

void engine_say_disk(const struct engine *e)
{
    const struct run *r = e->run;
    const struct offload_conf *o = &e->shard->conf.offload;
    struct shard_memory z;
    struct text how = {0};
    char disk[32], memory[32];
    if (!r->shard.offload.dir || !e->shard->offload)
        return;
    shard_measure(r->plan, r->model, &r->shard, e->group->rank, &z);
    offload_describe(e->shard->offload, &how);
    comm_print(r->comm, "offload  %s%s%s in %s: %s of each rank, through %s of memory; by %s",
               o->states ? "moments" : "", o->states && o->master ? " and " : "",
               o->master ? "master weights" : "", o->dir, text_bytes(disk, (double)z.disk),
               text_bytes(memory, (double)z.swap), how.s);
    say_others(r->comm, &how);
    text_clear(&how);
}
