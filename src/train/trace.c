/* Spans: recording them in rings, writing them in Chrome's "Trace Event Format" (complete events,
 * phase X, and metadata, phase M). */
#include "train/trace.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "train/trace_impl.h"
#include <stdlib.h>

static const char *const lane_names[TRACE_LANES] = {"compute", "communication", "data", "I/O",
                                                    "background communication"};

int trace_create(int64_t n_spans, struct trace **out)
{
    *out = NULL;
    REQUIRE(n_spans > 0);
    struct trace *t = calloc(1, sizeof *t);
    if (!t)
        FAIL(ERR_RESOURCE, "out of memory for a trace");
    t->cap = n_spans;
    t->names = arena_create();
    for (int i = 0; i < TRACE_LANES; i++) {
        t->lane[i].ring = calloc((size_t)n_spans, sizeof(struct trace_span));
        if (!t->lane[i].ring) {
            trace_destroy(&t);
            FAIL(ERR_RESOURCE, "no memory for a trace of %lld spans", (long long)n_spans);
        }
    }
    *out = t;
    return ERR_OK;
}

void trace_destroy(struct trace **trace)
{
    struct trace *t = *trace;
    if (!t)
        return;
    trace_detach(t);
    for (int i = 0; i < TRACE_LANES; i++)
        free(t->lane[i].ring);
    arena_destroy(&t->names);
    free(t);
    *trace = NULL;
}

void trace_switch(struct trace *t, bool on)
{
    if (!t)
        return;
    for (int i = 0; i < TRACE_LANES; i++)
        REQUIRE(t->lane[i].depth == 0);
    t->on = on;
}

void trace_begin(struct trace *t, enum trace_lane lane, const char *name, const char *detail)
{
    if (!t || !t->on)
        return;
    struct trace_lane_state *l = &t->lane[lane];
    REQUIRE(l->depth < TRACE_DEPTH);
    l->open[l->depth++] =
        (struct trace_span){.name = name, .detail = detail, .begin_s = clock_now_s()};
}

void trace_end(struct trace *t, enum trace_lane lane)
{
    if (!t || !t->on)
        return;
    struct trace_lane_state *l = &t->lane[lane];
    REQUIRE(l->depth > 0);
    struct trace_span *s = &l->ring[l->n++ % t->cap];
    *s = l->open[--l->depth];
    s->end_s = clock_now_s();
}

int64_t trace_lost(const struct trace *t)
{
    int64_t lost = 0;
    if (!t)
        return 0;
    for (int i = 0; i < TRACE_LANES; i++)
        lost += t->lane[i].n > t->cap ? t->lane[i].n - t->cap : 0;
    return lost;
}

static void add_lane(struct text *out, const struct trace *t, int lane, int rank)
{
    const struct trace_lane_state *l = &t->lane[lane];
    text_printf(out,
                ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"name\":\"%s\"}}",
                rank, lane, lane_names[lane]);
    text_printf(out,
                ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                "\"args\":{\"sort_index\":%d}}",
                rank, lane, lane);
    for (int64_t i = l->n > t->cap ? l->n - t->cap : 0; i < l->n; i++) {
        const struct trace_span *s = &l->ring[i % t->cap];
        text_printf(out, ",\n{\"name\":");
        text_json_string(out, s->name);
        text_printf(out,
                    ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f",
                    lane_names[lane], rank, lane, s->begin_s * 1e6, (s->end_s - s->begin_s) * 1e6);
        if (s->detail) {
            text_printf(out, ",\"args\":{\"of\":");
            text_json_string(out, s->detail);
            text_printf(out, "}");
        }
        text_printf(out, "}");
    }
}

int trace_write(const struct trace *t, const char *path, int rank)
{
    if (!t)
        return ERR_OK;
    struct text out = {0};
    text_printf(&out,
                "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"lost_spans\":\"%lld\"},"
                "\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
                "\"args\":{\"name\":\"rank %d\"}}",
                (long long)trace_lost(t), rank, rank);
    for (int i = 0; i < TRACE_LANES; i++)
        add_lane(&out, t, i, rank);
    text_printf(&out, "\n]}\n");
    int rc = file_write(path, out.s, out.n_bytes);
    text_clear(&out);
    return rc;
}
