/* Reading weights: by ranges of our order, out of a source that may have another. */
#include "ckpt/names.h"

#include "tensor/convert.h"
#include <stdlib.h>
#include <string.h>

enum { TILE_BYTES = 4 << 20 };

static void *room(size_t n_bytes, const struct weight *w)
{
    void *p = malloc(n_bytes ? n_bytes : 1);
    if (!p)
        err_set(ERR_RESOURCE, "no memory to turn %s", w->x.name);
    return p;
}

/* A tile of whole rows of ours, [row, row + n_rows): columns of the source's rows. */
static int read_tile(const struct weights *w, const struct weight *x, int64_t row, int64_t n_rows,
                     char *tile, char *line)
{
    int64_t R = x->x.shape.dim[0], C = x->x.shape.dim[1];
    size_t n = dtype_bytes(x->x.dtype);
    for (int64_t c = 0; c < C; c++) {
        TRY(source_read(w->source, x->from, c * R + row, c * R + row + n_rows, line));
        for (int64_t r = 0; r < n_rows; r++)
            memcpy(tile + (size_t)(r * C + c) * n, line + (size_t)r * n, n);
    }
    return ERR_OK;
}

static int read_transposed(const struct weights *w, const struct weight *x, int64_t begin,
                           int64_t end, char *values)
{
    int64_t C = x->x.shape.dim[1], n = (int64_t)dtype_bytes(x->x.dtype);
    int64_t last = (end + C - 1) / C, most = TILE_BYTES / (C * n);
    if (most < 1)
        most = 1;
    if (most > last - begin / C)
        most = last - begin / C;
    char *tile = room((size_t)(most * C * n), x), *line = room((size_t)(most * n), x);
    int rc = tile && line ? ERR_OK : ERR_RESOURCE;
    for (int64_t row = begin / C; row < last && rc == ERR_OK; row += most) {
        int64_t n_rows = last - row < most ? last - row : most;
        rc = read_tile(w, x, row, n_rows, tile, line);
        int64_t low = row * C > begin ? row * C : begin;
        int64_t high = (row + n_rows) * C < end ? (row + n_rows) * C : end;
        if (rc == ERR_OK)
            memcpy(values + (low - begin) * n, tile + (low - row * C) * n,
                   (size_t)((high - low) * n));
    }
    free(tile);
    free(line);
    return rc;
}

/* Row r of a head is row 2 (r mod D/2) + r / (D/2) of the source's. */
static int read_halves(const struct weights *w, const struct weight *x, int64_t begin, int64_t end,
                       char *values)
{
    int64_t C = x->x.shape.dim[1], D = x->head_rows, n = (int64_t)dtype_bytes(x->x.dtype);
    char *head = room((size_t)(D * C * n), x);
    int rc = head ? ERR_OK : ERR_RESOURCE;
    for (int64_t first = begin / (D * C) * D; first * C < end && rc == ERR_OK; first += D) {
        rc = source_read(w->source, x->from, first * C, (first + D) * C, head);
        for (int64_t r = 0; r < D && rc == ERR_OK; r++) {
            int64_t at = (first + r) * C, low = at > begin ? at : begin;
            int64_t high = at + C < end ? at + C : end;
            int64_t from = 2 * (r % (D / 2)) + r / (D / 2);
            if (low < high)
                memcpy(values + (low - begin) * n, head + (from * C + low - at) * n,
                       (size_t)((high - low) * n));
        }
    }
    free(head);
    return rc;
}

int weights_read(const struct weights *w, int i, int64_t begin, int64_t end, void *values)
{
    const struct weight *x = &w->rows[i];
    if (begin == end)
        return ERR_OK;
    if (x->turn == TURN_TRANSPOSE)
        return read_transposed(w, x, begin, end, values);
    if (x->turn == TURN_HALVES)
        return read_halves(w, x, begin, end, values);
    return source_read(w->source, x->from, begin, end, values);
}

int weights_read_as(const struct weights *w, int i, enum dtype as, int64_t begin, int64_t end,
                    void *values)
{
    const struct weight *x = &w->rows[i];
    size_t from_bytes = dtype_bytes(x->x.dtype), to_bytes = dtype_bytes(as);
    if (as == x->x.dtype)
        return weights_read(w, i, begin, end, values);
    if (!dtype_is_float(as) || !dtype_is_float(x->x.dtype))
        FAIL(ERR_DATA, "%s: %s is %s, which is not turned into %s", w->source->path, x->x.name,
             dtype_name(x->x.dtype), dtype_name(as));
    int64_t most = TILE_BYTES / (int64_t)from_bytes;
    if (most > end - begin)
        most = end - begin;
    char *piece = room((size_t)most * from_bytes, x);
    int rc = piece ? ERR_OK : ERR_RESOURCE;
    for (int64_t at = begin; at < end && rc == ERR_OK; at += most) {
        int64_t n = end - at < most ? end - at : most;
        rc = weights_read(w, i, at, at + n, piece);
        char *to = (char *)values + (size_t)(at - begin) * to_bytes;
        if (rc != ERR_OK)
            break;
        int64_t n_over = dtype_convert(as, to, x->x.dtype, piece, n);
        if (n_over > 0)
            rc = err_set(ERR_DATA, "%s: %lld values of %s are beyond the range of %s",
                         w->source->path, (long long)n_over, x->x.name, dtype_name(as));
    }
    free(piece);
    return rc;
}
