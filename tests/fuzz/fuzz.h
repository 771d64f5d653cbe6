/* For the fuzz targets: a file of these bytes, opened as a source, and every value read.
 * `make fuzz` builds them with clang and runs each for FUZZ_S seconds. */
#pragma once
#include "ckpt/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* All of an array, in two parts and with its last element alone. */
static inline void fuzz_read(const struct source *s, int i)
{
    int64_t n = shape_elems(&s->arrays[i].shape);
    if (s->arrays[i].dtype == DTYPE_COUNT || n > 1 << 20)
        return;
    char *values = malloc((size_t)n * dtype_bytes(s->arrays[i].dtype));
    if (values && source_read(s, i, 0, n / 2, values) == ERR_OK &&
        source_read(s, i, n / 2, n, values) == ERR_OK)
        (void)source_read(s, i, n - 1, n, values);
    free(values);
}

/* What follows from a header has to hold, whatever the header says. */
static inline int fuzz_source(const struct source_ops *ops, const uint8_t *data, size_t n_bytes)
{
    char path[64];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct source s = {.ops = ops, .arena = arena_create(), .path = path};
    if (ops->open(&s) == ERR_OK)
        for (int i = 0; i < s.n_arrays; i++)
            fuzz_read(&s, i);
    ops->close(&s);
    arena_destroy(&s.arena);
    close(fd);
    return 0;
}
