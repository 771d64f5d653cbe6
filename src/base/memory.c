/* Files of the kernel's, read with plain calls so that looking does not change what is seen. */
#include "base/memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t field(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoll(at + strlen(name), NULL, 10) * 1024 : 0;
}

/* The beginning of a file of the kernel's, "" where there is none. */
static const char *look(const char *path, char text[4096])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, 4095) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* A number alone in a file; -1: no such file, or a word. */
static int64_t number(const char *path)
{
    char text[4096], *end;
    int64_t v = strtoll(look(path, text), &end, 10);
    return end > text ? v : -1;
}

/* The two generations of control groups: where they are mounted, what /proc/self/cgroup calls them,
 * and the names of their files and of the lines of memory.stat. */
struct generation {
    const char *folder, *mark, *limit, *used, *inactive, *active;
};
static const struct generation generations[] = {
    {"", "0::", "memory.max", "memory.current", "\ninactive_file ", "\nactive_file "},
    {"/memory", ":memory:", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "\ntotal_inactive_file ", "\ntotal_active_file "},
};

static int64_t line_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoll(at + strlen(name), NULL, 10) : 0;
}

/* What one group may still take.  Copies of files count as used, but give way. */
static int64_t left_in(const struct generation *g, const char *root, const char *group)
{
    char path[1024], text[4096];
    snprintf(path, sizeof path, "%s%s%s/%s", root, g->folder, group, g->limit);
    int64_t limit = number(path);
    snprintf(path, sizeof path, "%s%s%s/%s", root, g->folder, group, g->used);
    int64_t used = number(path);
    if (limit < 0 || used < 0)
        return INT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, g->folder, group);
    look(path, text);
    used -= line_of(text, g->inactive) + line_of(text, g->active);
    return limit > used ? limit - (used > 0 ? used : 0) : 0;
}

int64_t memory_left_in_groups(const char *root, const char *groups)
{
    int64_t left = INT64_MAX;
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
        const struct generation *g = &generations[i];
        const char *at = strstr(groups, g->mark);
        char group[512] = "";
        if (at) {
            at += strlen(g->mark);
            snprintf(group, sizeof group, "%.*s", (int)strcspn(at, "\n"), at);
        }
        for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
            *end = 0;
            int64_t here = left_in(g, root, group);
            left = here < left ? here : left;
        }
    }
    return left;
}

static int64_t available(bool with_swap)
{
    char text[4096];
    look("/proc/meminfo", text);
    int64_t there = field(text, "MemAvailable:") + (with_swap ? field(text, "SwapFree:") : 0);
    int64_t left = memory_left_in_groups("/sys/fs/cgroup", look("/proc/self/cgroup", text));
    if (there == 0)
        there = INT64_MAX;
    return left < there ? left : there;
}

int64_t memory_available(void)
{
    return available(false);
}

int64_t memory_most(void)
{
    return available(true);
}

struct memory_use memory_use_now(void)
{
    char text[4096];
    look("/proc/self/status", text);
    return (struct memory_use){.peak = field(text, "VmHWM:"),
                               .anon = field(text, "RssAnon:"),
                               .file = field(text, "RssFile:"),
                               .shmem = field(text, "RssShmem:")};
}
