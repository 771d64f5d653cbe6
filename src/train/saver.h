/* When and how a run saves: at once or behind the training, what a failed save means, which
 * checkpoint is the best. */
#pragma once
#include "ckpt/background.h"
#include "train/metrics.h"

struct saver {
    struct engine *engine; /* borrowed, as the next three */
    struct metrics *metrics;
    const char *job_text, *run_id;
    struct ckpt_background *background; /* owned; NULL: saves wait */
    int n_snapshots;
    int64_t snapshot_bytes;
    int file_ranks;     /* that share a file of a sharded checkpoint */
    int64_t saved_step; /* newest step that is saved or on its way; -1: none */
    double save_s;      /* how long the last save took; < 0: none yet */
    double started_s[CKPT_MOST_SNAPSHOTS];
    int n_started;
    double best_loss; /* of the run so far; NaN: none */
};

/* Choose by checkpoint.async and the memory of the nodes, and say which: rank 0 prints one line.
 * metrics, job_text, run_id may still be empty.  ERR_RESOURCE: async = true, and no room.
 * ERR_USAGE: a file a node, and nodes whose ranks do not follow each other.
 * Collective on run->comm. */
int saver_open(struct saver *s, struct engine *e);
/* Gives up what is under way: such a step is not saved.  Local. */
void saver_close(struct saver *s);

/* Save the engine's state: in the background if there is one and the run goes on.  The last one of
 * a run that is finished is of final_state_dict_type; one that was stopped goes on later.
 * ERR_RESOURCE where on_save_error says stop.  Collective on run->comm. */
enum save_when { SAVE_ON_THE_WAY, SAVE_STOPPED, SAVE_LAST };
int saver_save(struct saver *s, enum save_when when, bool is_best);

/* Is this evaluation better than all before?  Remembers it.  Local, equal on all ranks. */
bool saver_is_best(struct saver *s, double loss);

/* Between two steps: go on with what is under way; its errors come back here, on all ranks.
 * Collective on run->comm. */
int saver_poll(struct saver *s);

/* Wait until nothing is under way.  Collective on run->comm. */
int saver_finish(struct saver *s);

/* What this rank's snapshots may take.  Local. */
size_t saver_bytes(const struct saver *s);

/* Snapshots that a job may hold.  Local, pure. */
int saver_most_snapshots(const struct run *r);
