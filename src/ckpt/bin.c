/* What the .bin formats have in common: untrusted numbers, and tensors without names. */
#include "ckpt/bin.h"

#include "base/file.h"
#include <string.h>

int bin_open(struct bin *b, struct source *s, int64_t offset, int n, int32_t *header)
{
    *b = (struct bin){.s = s, .files = source_files_new(s, 1, 0)};
    b->files->path[0] = s->path;
    TRY(source_open_file(s->path, &b->files->fd[0], &b->n_bytes));
    for (int i = 0; i < n; i++) {
        unsigned char x[4];
        TRY(file_pread_fd(b->files->fd[0], s->path, x, sizeof x, offset + 4 * i));
        uint32_t v =
            (uint32_t)x[0] | (uint32_t)x[1] << 8 | (uint32_t)x[2] << 16 | (uint32_t)x[3] << 24;
        memcpy(&header[i], &v, sizeof v);
    }
    return ERR_OK;
}

void bin_begin(struct bin *b, int n_arrays, enum dtype dtype, int64_t at)
{
    b->arrays = arena_alloc(b->s->arena, ((size_t)n_arrays + 1) * sizeof *b->arrays);
    b->files->place =
        arena_alloc(b->s->arena, ((size_t)n_arrays + 1) * sizeof(struct source_place));
    b->dtype = dtype;
    b->at = at;
}

void bin_add(struct bin *b, const char *name, int64_t rows, int64_t cols)
{
    int i = b->s->n_arrays++;
    b->arrays[i] = (struct ckpt_array){.group = "model",
                                       .name = arena_strdup(b->s->arena, name),
                                       .shape = shape_make(cols ? 2 : 1, rows, cols),
                                       .dtype = b->dtype};
    b->files->place[i].offset = b->at;
    b->at += rows * (cols ? cols : 1) * (int64_t)dtype_bytes(b->dtype);
}

void bin_add_layers(struct bin *b, const char *prefix, const char *name, int64_t n_layer,
                    int64_t rows, int64_t cols)
{
    for (int64_t l = 0; l < n_layer; l++)
        bin_add(b, arena_printf(b->s->arena, "%s.%lld.%s", prefix, (long long)l, name), rows, cols);
}

int bin_end(struct bin *b, const char *config)
{
    struct source *s = b->s;
    if (b->at != b->n_bytes)
        FAIL(ERR_DATA, "%s has %lld bytes, its header's sizes make %lld", s->path,
             (long long)b->n_bytes, (long long)b->at);
    s->arrays = b->arrays;
    return json_parse(config, strlen(config), s->arena, &s->config);
}

int bin_check(const struct bin *b, const char *field, int64_t v, int64_t most)
{
    if (v < 1 || v > most)
        FAIL(ERR_DATA, "%s: its header says %s = %lld; 1 to %lld are possible", b->s->path, field,
             (long long)v, (long long)most);
    return ERR_OK;
}
