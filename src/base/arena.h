/* Two lifetimes of memory.  An arena grows, and is freed as a whole: strings, descriptions, plans.
 * A stack is one block of a size known in advance, used last-in first-out: activations, scratch.
 * A counting stack hands out addresses that nobody may touch and only remembers its peak: this is
 * how a dry run of a model measures what the real run will need.  A stack may lie in two blocks:
 * what would reach across the end of the first begins the second. */
#pragma once
#include "base/err.h"
#include <stdint.h>

struct arena;

/* Owned by the caller until arena_destroy(), which nulls it.  Out of memory is fatal: an arena
 * holds descriptions, never data.  Local. */
struct arena *arena_create(void);
void arena_destroy(struct arena **a);
void *arena_alloc(struct arena *a, size_t n_bytes); /* zeroed, aligned to 64 bytes */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n_bytes);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

struct stack {
    char *base; /* borrowed; NULL while counting */
    char *more; /* borrowed: where the rest begins; NULL while there is none */
    size_t split;
    size_t n_bytes; /* of both */
    size_t top;
    size_t peak;
    bool counting;
};

enum { STACK_ALIGN = 64 };

/* Local.  stack_push is fatal when the stack is full: the plan was wrong. */
void stack_init(struct stack *s, void *base, size_t n_bytes);
void stack_init_counting(struct stack *s);
/* An empty stack of n_bytes at its base goes on in so many more, which lie nowhere if it counts. */
void stack_extend(struct stack *s, size_t n_bytes, void *more, size_t more_bytes);
void *stack_push(struct stack *s, size_t n_bytes);

static inline size_t stack_mark(const struct stack *s)
{
    return s->top;
}
static inline void stack_release(struct stack *s, size_t mark)
{
    s->top = mark;
}
