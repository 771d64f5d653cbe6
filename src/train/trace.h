/* Where a step's time goes: spans of time in lanes, written for Perfetto and chrome://tracing.
 *
 * A trace has room for a fixed number of finished spans a lane, newest kept, so nothing allocates
 * while it records.  Spans of a lane nest; a lane belongs to one thread at a time.  Every function
 * takes a NULL trace and then does nothing, so that callers need not ask whether there is one.
 *
 * What is timed by itself are modules, by their hooks (class, direction and path: "Linear forward"
 * of "h.0.mlp.c_fc"), and a communicator's collectives, by their table.  The kernel table is not
 * decorated: forwarding a call needs its arguments' names once more, and two swapped names of one
 * type would compile, so that a profiled run could compute something else than the run it stands
 * for.  Times are the host's: on a CPU, where calls run at once, they are the work's own. */
#pragma once
#include "comm/comm.h"
#include "layer/module.h"

struct trace;

/* COMM: where the computation waits; BACKGROUND: gathers and sums beside it. */
enum trace_lane { TRACE_COMPUTE, TRACE_COMM, TRACE_DATA, TRACE_IO, TRACE_BACKGROUND, TRACE_LANES };

/* Off at first.  n_spans: room in each lane.  ERR_RESOURCE.  Local. */
int trace_create(int64_t n_spans, struct trace **out);
/* Detaches, too.  Local. */
void trace_destroy(struct trace **t);

/* Record or not: only while no span is open.  Local. */
void trace_switch(struct trace *t, bool on);

/* name and detail (NULL: none) must stay until the trace is destroyed.  At most 64 spans deep.
 * Local. */
void trace_begin(struct trace *t, enum trace_lane lane, const char *name, const char *detail);
void trace_end(struct trace *t, enum trace_lane lane);

/* Spans that were overwritten because a lane had no room.  Local. */
int64_t trace_lost(const struct trace *t);

/* Time every module of a tree and every collective of a communicator from now on, behind whatever
 * hooks and table they have; either may be NULL.  Both must stay until trace_detach(), which gives
 * them back their own.  ERR_RESOURCE.  Local. */
int trace_attach(struct trace *t, struct module *root, struct comm *c);
/* And those of another, three in all; NULL: of none.  Local. */
void trace_attach_comm(struct trace *t, struct comm *c);
void trace_detach(struct trace *t);

/* Write all lanes as Chrome's JSON: the process is the rank, microseconds are those of
 * clock_now_s(), which the ranks of a node share.  ERR_RESOURCE.  Local. */
int trace_write(const struct trace *t, const char *path, int rank);
