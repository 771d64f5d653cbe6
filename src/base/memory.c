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

struct memory_use memory_use_now(void)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return (struct memory_use){.peak = field(text, "VmHWM:"),
                               .anon = field(text, "RssAnon:"),
                               .file = field(text, "RssFile:"),
                               .shmem = field(text, "RssShmem:")};
}
