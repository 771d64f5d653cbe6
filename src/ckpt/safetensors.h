/* safetensors: 8 bytes with the length of a JSON header (little-endian), the header {"NAME":
 * {"dtype", "shape", "data_offsets": [begin, end)}, …, "__metadata__": {text: text}}, the values,
 * row-major and without gaps.  After the format's published description (huggingface/safetensors,
 * README, "Format").  Several files: model-00001-of-00002.safetensors, …, and an index
 * {"metadata", "weight_map": {NAME: FILE}}. */
#pragma once
#include "ckpt/ckpt.h"

enum { SAFETENSORS_MAX_HEADER = 100000000 }; /* as in the format's own reader */

/* What a header says, proved against the bytes that follow it. */
struct safetensors_header {
    struct ckpt_array *arrays; /* group "model"; dtype DTYPE_COUNT: one that is not read here */
    const char **dtype_words;
    int64_t *offset; /* byte in the file */
    int n;
    const struct json *metadata; /* NULL: none */
};

/* bytes: the header alone, n_header of it, of a file of n_file bytes.  ERR_DATA names tensor and
 * number: offsets that overlap, leave a gap or leave the file, a shape of another size, names that
 * stand twice or are none.  Local. */
int safetensors_parse(const char *bytes, size_t n_header, int64_t n_file, struct arena *a,
                      struct safetensors_header *out);

/* Read and prove the header of an open file.  Local. */
int safetensors_read_header(int fd, const char *path, int64_t n_file, struct arena *a,
                            struct safetensors_header *out);

/* Where values come from: elements [begin, end) of array i in the dtype of its row. */
typedef int safetensors_fetch(void *self, int i, int64_t begin, int64_t end, void *to);

struct safetensors_save {
    const char *folder;     /* made if it is not there */
    const char *name;       /* of the file, or NULL: model.safetensors, or shards and an index */
    int64_t max_file_bytes; /* a shard's values at most, but for a tensor that is larger alone */
    const struct ckpt_array *arrays;
    int n_arrays;
    const char *const *metadata; /* key, text, …, NULL: for __metadata__ of every file */
    bool overwrite;
    safetensors_fetch *fetch;
    void *self;
};

/* Write it all, in pieces of at most 1 MiB of memory; each file under a temporary name until it is
 * on the disk, the index last.  Every rank writes a share of the values.  ERR_DATA: it is there
 * already; ERR_RESOURCE: the disk.  Collective on c. */
int safetensors_write(struct comm *c, const struct safetensors_save *s, struct arena *a);
