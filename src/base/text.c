/* Growing text, nearest spelling, sizes and durations for people. */
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void text_reserve(struct text *t, size_t more)
{
    if (t->n_bytes + more + 1 <= t->cap)
        return;
    size_t cap = t->cap ? t->cap * 2 : 256;
    while (cap < t->n_bytes + more + 1)
        cap *= 2;
    char *s = realloc(t->s, cap);
    if (!s)
        FATAL("out of memory for %zu bytes of text", cap);
    t->s = s;
    t->cap = cap;
}

void text_add(struct text *t, const void *bytes, size_t n_bytes)
{
    text_reserve(t, n_bytes);
    if (n_bytes)
        memcpy(t->s + t->n_bytes, bytes, n_bytes);
    t->n_bytes += n_bytes;
    t->s[t->n_bytes] = 0;
}

void text_printf(struct text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    REQUIRE(n >= 0);
    text_reserve(t, (size_t)n);
    vsnprintf(t->s + t->n_bytes, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n_bytes += (size_t)n;
}

void text_json_string(struct text *t, const char *s)
{
    text_add(t, "\"", 1);
    for (const unsigned char *c = (const unsigned char *)s; *c; c++) {
        if (*c == '"' || *c == '\\')
            text_printf(t, "\\%c", *c);
        else if (*c < 32 || *c == 127)
            text_printf(t, "\\u%04x", *c);
        else
            text_add(t, c, 1);
    }
    text_add(t, "\"", 1);
}

void text_clear(struct text *t)
{
    free(t->s);
    *t = (struct text){0};
}

bool text_same(const char *a, const char *b)
{
    while (*a && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

int text_distance(const char *a, const char *b, int limit)
{
    enum { MAX = 128 };
    int row[3][MAX + 1];
    int n_a = (int)strlen(a), n_b = (int)strlen(b);
    if (n_a > MAX || n_b > MAX || abs(n_a - n_b) > limit)
        return limit + 1;
    int *before = row[0], *last = row[1], *now = row[2];
    for (int j = 0; j <= n_b; j++)
        last[j] = j;
    for (int i = 1; i <= n_a; i++) {
        now[0] = i;
        for (int j = 1; j <= n_b; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                tolower((unsigned char)a[i - 2]) == y && before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
        int *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[n_b] <= limit ? last[n_b] : limit + 1;
}

const char *text_nearest(const char *w, const char *const *words)
{
    const char *best = NULL;
    int limit = (int)strlen(w) / 3 + 1, best_d = limit + 1;
    for (; *words; words++) {
        int d = text_distance(w, *words, limit);
        if (d < best_d) {
            best_d = d;
            best = *words;
        }
    }
    return best;
}

const char *text_bytes(char *buf, double n_bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int u = 0;
    while (n_bytes >= 1024 && u < 5) {
        n_bytes /= 1024;
        u++;
    }
    snprintf(buf, 32, n_bytes < 10 && u > 0 ? "%.2f %s" : "%.0f %s", n_bytes, unit[u]);
    return buf;
}

const char *text_duration(char *buf, double seconds)
{
    if (!(seconds >= 0 && seconds < 3.6e8)) {
        snprintf(buf, 32, "?");
        return buf;
    }
    long s = lrint(seconds);
    if (s >= 3600)
        snprintf(buf, 32, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, 32, "%ld:%02ld", s / 60, s % 60);
    return buf;
}
