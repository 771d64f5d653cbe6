/* Block-list arena and LIFO stack. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    struct block *next;
    size_t n_bytes;
    size_t used;
    char *data;
};

struct arena {
    struct block *head;
};

enum { BLOCK_BYTES = 64 * 1024, ARENA_ALIGN = 64 };

struct arena *arena_create(void)
{
    struct arena *a = calloc(1, sizeof *a);
    if (!a)
        FATAL("out of memory for an arena");
    return a;
}

void arena_destroy(struct arena **a)
{
    if (!*a)
        return;
    for (struct block *b = (*a)->head, *next; b; b = next) {
        next = b->next;
        free(b->data);
        free(b);
    }
    free(*a);
    *a = NULL;
}

static struct block *block_create(size_t n_bytes)
{
    struct block *b = calloc(1, sizeof *b);
    if (!b || posix_memalign((void **)&b->data, ARENA_ALIGN, n_bytes) != 0)
        FATAL("out of memory for %zu bytes", n_bytes);
    b->n_bytes = n_bytes;
    return b;
}

void *arena_alloc(struct arena *a, size_t n_bytes)
{
    size_t need = (n_bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (need < n_bytes)
        FATAL("arena request of %zu bytes", n_bytes);
    if (need == 0)
        need = ARENA_ALIGN;
    struct block *b = a->head;
    if (!b || b->n_bytes - b->used < need) {
        b = block_create(need > BLOCK_BYTES ? need : BLOCK_BYTES);
        b->next = a->head;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += need;
    memset(p, 0, need);
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n_bytes)
{
    char *p = arena_alloc(a, n_bytes + 1);
    memcpy(p, s, n_bytes);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    REQUIRE(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void stack_init(struct stack *s, void *base, size_t n_bytes)
{
    *s = (struct stack){.base = base, .n_bytes = n_bytes, .split = SIZE_MAX};
}

void stack_init_counting(struct stack *s)
{
    *s = (struct stack){.n_bytes = SIZE_MAX / 2, .split = SIZE_MAX, .counting = true};
}

void stack_extend(struct stack *s, size_t n_bytes, void *more, size_t more_bytes)
{
    REQUIRE(s->top == 0 && n_bytes % STACK_ALIGN == 0);
    s->split = n_bytes;
    s->more = more;
    s->n_bytes = n_bytes + more_bytes;
}

void *stack_push(struct stack *s, size_t n_bytes)
{
    size_t need = (n_bytes + STACK_ALIGN - 1) & ~(size_t)(STACK_ALIGN - 1);
    size_t at = s->top;
    if (at < s->split && need > s->split - at)
        at = s->split;
    if (at > s->n_bytes || need > s->n_bytes - at)
        FATAL("stack of %zu bytes is full: %zu in use, %zu wanted", s->n_bytes, s->top, n_bytes);
    s->top = at + need;
    if (s->top > s->peak)
        s->peak = s->top;
    /* while counting, an address that is never NULL and never valid */
    if (s->counting)
        return (void *)(uintptr_t)(at + STACK_ALIGN);
    return at < s->split ? s->base + at : s->more + (at - s->split);
}
