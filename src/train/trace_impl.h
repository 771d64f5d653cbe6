/* Private to trace*.c: a trace, and what it hangs on others. */
#pragma once
#include "train/trace.h"

enum { TRACE_DEPTH = 64, TRACE_COMMS = 3 };

struct trace_span {
    const char *name, *detail;
    double begin_s, end_s;
};

struct trace_lane_state {
    struct trace_span *ring; /* owned: finished spans, span i at i mod cap */
    int64_t n;               /* finished so far */
    struct trace_span open[TRACE_DEPTH];
    int depth;
};

/* A module's own hooks, and those that time it and call them. */
struct trace_module {
    struct trace *trace;
    struct module *module;
    const struct hooks *own; /* borrowed; NULL: none */
    struct hooks hooks;
    const char *forward, *backward; /* span names */
};

/* A communicator as it was, while its table is the timed one; timed NULL: none. */
struct trace_comm {
    struct trace *trace;
    struct comm *timed;
    struct comm own;
};

struct trace {
    struct trace_lane_state lane[TRACE_LANES];
    int64_t cap;
    bool on;
    struct arena *names;         /* owned */
    struct trace_module *module; /* owned */
    int n_modules;
    struct trace_comm comm[TRACE_COMMS];
};
