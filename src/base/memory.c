/* /proc/self/status, read with plain calls so that looking does not change what is seen. */
#include "base/memory.h"

#include <fcntl.h>
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

int64_t memory_available(void)
{
    char text[4096];
    int64_t there = field(look("/proc/meminfo", text), "MemAvailable:");
    if (there == 0)
        there = INT64_MAX;
    static const char *const group[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
         "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
    for (int i = 0; i < 2; i++) {
        int64_t limit = number(group[i][0]), used = number(group[i][1]);
        if (limit >= 0 && used >= 0 && limit - used < there)
            there = limit > used ? limit - used : 0;
    }
    return there;
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
