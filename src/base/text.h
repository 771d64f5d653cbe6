/* Text that grows, and the few string helpers that several folders need. */
#pragma once
#include "base/err.h"
#include <stdarg.h>

struct text {
    char *s; /* owned; always ends in NUL once something was added; NULL when empty */
    size_t n_bytes;
    size_t cap;
};

/* Local; out of memory is fatal.  text_clear frees. */
void text_add(struct text *t, const void *bytes, size_t n_bytes);
void text_printf(struct text *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_json_string(struct text *t, const char *s); /* quoted and escaped as JSON */
void text_clear(struct text *t);

/* Same letters but for case (ASCII).  Local. */
bool text_same(const char *a, const char *b);

/* Edit distance, adjacent swaps counted once (Damerau), case ignored; at most limit + 1.  Local. */
int text_distance(const char *a, const char *b, int limit);

/* The word of a NULL-terminated list nearest to w, or NULL if none is near enough to be what was
 * meant.  Local. */
const char *text_nearest(const char *w, const char *const *words);

/* Bytes for a person: "1.5 MiB".  Writes into buf (at least 32 bytes), returns it.  Local. */
const char *text_bytes(char *buf, double n_bytes);
/* A duration for a person: "2:05", "1:02:05".  As above. */
const char *text_duration(char *buf, double seconds);
