/* Reads a safetensors file (8 bytes of header length, a JSON header, raw tensors) for a test. */
#pragma once
#include "base/file.h"
#include "base/json.h"

#include <string.h>

struct safetensors {
    char *bytes;
    const char *data;
    const struct json *header;
};

static inline void safetensors_open(const char *path, struct arena *a, struct safetensors *f)
{
    size_t n_bytes;
    uint64_t n_header;
    if (file_read(path, 64 << 20, ERR_DATA, &f->bytes, &n_bytes) != ERR_OK)
        FATAL("%s", err_text());
    REQUIRE(n_bytes > 8);
    memcpy(&n_header, f->bytes, 8);
    REQUIRE(n_header < n_bytes - 8);
    if (json_parse(f->bytes + 8, n_header, a, &f->header) != ERR_OK)
        FATAL("%s: %s", path, err_text());
    f->data = f->bytes + 8 + n_header;
}

/* Copies a tensor of 4-byte elements; stops the test if its size is another. */
static inline void safetensors_get(const struct safetensors *f, const char *name, void *to,
                                   int64_t n_elem)
{
    const struct json *t = json_get(f->header, name), *range;
    int64_t begin = 0, end = 0;
    if (!t || !(range = json_get(t, "data_offsets")))
        FATAL("no tensor \"%s\"", name);
    REQUIRE(json_as_i64(json_at(range, 0), &begin) == ERR_OK);
    REQUIRE(json_as_i64(json_at(range, 1), &end) == ERR_OK);
    if (end - begin != 4 * n_elem)
        FATAL("\"%s\" has %lld bytes, not %lld", name, (long long)(end - begin),
              (long long)(4 * n_elem));
    memcpy(to, f->data + begin, (size_t)(end - begin));
}
