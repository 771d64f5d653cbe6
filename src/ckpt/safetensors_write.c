/* Writing safetensors, a piece of memory at a time. */
#include "ckpt/safetensors.h"

#include "base/file.h"
#include "base/file_once.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

static const char *const words[DTYPE_COUNT] = {
    [DTYPE_F32] = "F32", [DTYPE_F64] = "F64", [DTYPE_BF16] = "BF16",
    [DTYPE_F16] = "F16", [DTYPE_I32] = "I32", [DTYPE_I64] = "I64",
};

/* Files of a save: file k holds arrays [first[k], first[k + 1]). */
struct writing {
    struct comm *c; /* borrowed, as the next two */
    const struct safetensors_save *s;
    struct arena *a;
    int *first;
    const char **name;
    int n_files;
    int64_t n_bytes; /* of all values */
    char *piece;     /* owned; PIECE_BYTES */
};

static int64_t array_bytes(const struct ckpt_array *x)
{
    return shape_elems(&x->shape) * (int64_t)dtype_bytes(x->dtype);
}

static void cut_files(struct writing *w)
{
    const struct safetensors_save *s = w->s;
    int64_t in_file = 0;
    w->first = arena_alloc(w->a, ((size_t)s->n_arrays + 2) * sizeof *w->first);
    for (int i = 0; i < s->n_arrays; i++) {
        int64_t n = array_bytes(&s->arrays[i]);
        if (i > 0 && !s->name && s->max_file_bytes > 0 && in_file > s->max_file_bytes - n) {
            w->first[++w->n_files] = i;
            in_file = 0;
        }
        in_file += n;
        w->n_bytes += n;
    }
    w->first[++w->n_files] = s->n_arrays;
    w->name = arena_alloc(w->a, (size_t)w->n_files * sizeof *w->name);
    for (int k = 0; k < w->n_files; k++)
        w->name[k] = s->name ? s->name
                     : w->n_files == 1
                         ? "model.safetensors"
                         : arena_printf(w->a, "model-%05d-of-%05d.safetensors", k + 1, w->n_files);
}

/* Blanks behind the header let the values start at a multiple of 8. */
static void print_header(const struct writing *w, int k, struct text *t)
{
    int64_t at = 0;
    text_printf(t, "{");
    if (w->s->metadata) {
        text_printf(t, "\"__metadata__\":{");
        for (const char *const *m = w->s->metadata; *m; m += 2) {
            text_printf(t, "%s", m == w->s->metadata ? "" : ",");
            text_json_string(t, m[0]);
            text_printf(t, ":");
            text_json_string(t, m[1]);
        }
        text_printf(t, "},");
    }
    for (int i = w->first[k]; i < w->first[k + 1]; i++) {
        const struct ckpt_array *x = &w->s->arrays[i];
        text_printf(t, "%s", i == w->first[k] ? "" : ",");
        text_json_string(t, x->name);
        text_printf(t, ":{\"dtype\":\"%s\",\"shape\":[", words[x->dtype]);
        for (int d = 0; d < x->shape.n_dims; d++)
            text_printf(t, "%s%" PRId64, d ? "," : "", x->shape.dim[d]);
        text_printf(t, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + array_bytes(x));
        at += array_bytes(x);
    }
    text_printf(t, "}");
    while (t->n_bytes % 8 != 0)
        text_printf(t, " ");
}

static const char *place(const struct writing *w, const char *name, const char *end)
{
    return arena_printf(w->a, "%s/%s%s", w->s->folder, name, end);
}

static int close_file(int fd, const char *path, int rc)
{
    if (close(fd) != 0 && rc == ERR_OK)
        rc = err_set(ERR_RESOURCE, "cannot close %s: %s", path, strerror(errno));
    return rc;
}

static int header_of(const struct writing *w, int k, struct text *t)
{
    print_header(w, k, t);
    if (t->n_bytes > SAFETENSORS_MAX_HEADER)
        FAIL(ERR_DATA, "%s: its header would be too long", w->name[k]);
    return ERR_OK;
}

/* The header, and room for the values. */
static int create_file(const struct writing *w, int k)
{
    const char *tmp = place(w, w->name[k], ".tmp");
    struct text t = {0};
    unsigned char head[8];
    TRY(header_of(w, k, &t));
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)((uint64_t)t.n_bytes >> 8 * i & 255);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), rc;
    if (fd < 0)
        rc = err_set(ERR_RESOURCE, "cannot create %s: %s", tmp, strerror(errno));
    else
        rc = file_pwrite_fd(fd, tmp, head, sizeof head, 0);
    if (rc == ERR_OK)
        rc = file_pwrite_fd(fd, tmp, t.s, t.n_bytes, sizeof head);
    text_clear(&t);
    return fd < 0 ? rc : close_file(fd, tmp, rc);
}

/* A file that this rank writes to, and its next byte, whoever writes that. */
struct target {
    struct file_once file;
    int64_t at;
};

/* Pieces of array i; *before: bytes of all files before them.  A rank writes those that begin in
 * its share of all bytes. */
static int write_array(const struct writing *w, int i, struct target *t, int64_t *before)
{
    const struct ckpt_array *x = &w->s->arrays[i];
    int64_t elem_bytes = (int64_t)dtype_bytes(x->dtype), n = shape_elems(&x->shape);
    int64_t most = PIECE_BYTES / elem_bytes;
    for (int64_t begin = 0; begin < n; begin += most) {
        int64_t end = n - begin < most ? n : begin + most, n_bytes = (end - begin) * elem_bytes;
        double share = (double)*before / (double)w->n_bytes;
        if ((int)(share * w->c->size) == w->c->rank) {
            TRY(w->s->fetch(w->s->self, i, begin, end, w->piece));
            TRY(file_once_write(&t->file, w->piece, (size_t)n_bytes, t->at));
        }
        t->at += n_bytes;
        *before += n_bytes;
    }
    return ERR_OK;
}

static int write_file(const struct writing *w, int k, int64_t *before)
{
    struct target t;
    struct text head = {0};
    TRY(header_of(w, k, &head));
    t.at = 8 + (int64_t)head.n_bytes;
    text_clear(&head);
    int rc = ERR_OK;
    TRY(file_once_open(&t.file, place(w, w->name[k], ".tmp"), 0, false));
    for (int i = w->first[k]; i < w->first[k + 1] && rc == ERR_OK; i++)
        rc = write_array(w, i, &t, before);
    return file_once_close(&t.file, rc);
}

static int write_files(const struct writing *w)
{
    int64_t before = 0;
    for (int k = 0; k < w->n_files; k++)
        TRY(write_file(w, k, &before));
    return ERR_OK;
}

static int rename_file(const struct writing *w, const char *name)
{
    const char *from = place(w, name, ".tmp"), *to = place(w, name, "");
    if (rename(from, to) != 0)
        FAIL(ERR_RESOURCE, "cannot rename %s to %s: %s", from, to, strerror(errno));
    return ERR_OK;
}

#define INDEX_NAME "model.safetensors.index.json"

static int create_index(const struct writing *w)
{
    struct text t = {0};
    text_printf(&t, "{\n  \"metadata\": {\"total_size\": %" PRId64 "},\n  \"weight_map\": {",
                w->n_bytes);
    for (int k = 0; k < w->n_files; k++)
        for (int i = w->first[k]; i < w->first[k + 1]; i++) {
            text_printf(&t, "%s\n    ", i ? "," : "");
            text_json_string(&t, w->s->arrays[i].name);
            text_printf(&t, ": ");
            text_json_string(&t, w->name[k]);
        }
    text_printf(&t, "\n  }\n}\n");
    int rc = file_write(place(w, INDEX_NAME, ".tmp"), t.s, t.n_bytes);
    text_clear(&t);
    return rc;
}

/* A reader takes a folder's index before its single file, so what is left of another save would
 * speak for this one. */
static int check_free(const struct writing *w)
{
    const char *const taken[] = {"model.safetensors", INDEX_NAME};
    for (int k = 0; k < w->n_files + 2; k++) {
        const char *name = k < w->n_files ? w->name[k] : taken[k - w->n_files];
        const char *path = place(w, name, "");
        if ((k >= w->n_files && w->s->name) || access(path, F_OK) != 0)
            continue;
        if (!w->s->overwrite)
            FAIL(ERR_DATA, "%s is there already: choose another place, or say --overwrite", path);
    }
    return ERR_OK;
}

static int create_files(const struct writing *w)
{
    TRY(file_make_dirs(w->s->folder));
    TRY(check_free(w));
    for (int k = 0; k < w->n_files; k++)
        TRY(create_file(w, k));
    return ERR_OK;
}

static int name_files(const struct writing *w)
{
    if (w->n_files > 1)
        TRY(create_index(w));
    if (!w->s->name) /* of a save that is replaced */
        TRY(file_remove_tree(place(w, INDEX_NAME, "")));
    for (int k = 0; k < w->n_files; k++)
        TRY(rename_file(w, w->name[k]));
    if (w->n_files > 1) {
        TRY(rename_file(w, INDEX_NAME));
        TRY(file_remove_tree(place(w, "model.safetensors", "")));
    }
    return file_sync_dir(w->s->folder);
}

/* What has no name yet goes, and the reason stays. */
static void undo(const struct writing *w, int rc)
{
    const char *why = arena_strdup(w->a, err_text());
    for (int k = 0; k < w->n_files; k++)
        unlink(place(w, w->name[k], ".tmp"));
    unlink(place(w, INDEX_NAME, ".tmp"));
    err_set(rc, "%s", why);
}

int safetensors_write(struct comm *c, const struct safetensors_save *s, struct arena *a)
{
    struct writing w = {.c = c, .s = s, .a = a};
    for (int i = 0; i < s->n_arrays; i++)
        REQUIRE(s->arrays[i].dtype < DTYPE_COUNT);
    cut_files(&w);
    int rc = comm_agree(c, c->rank == 0 ? create_files(&w) : ERR_OK);
    if (rc == ERR_OK) {
        w.piece = malloc(PIECE_BYTES);
        rc = w.piece ? write_files(&w)
                     : err_set(ERR_RESOURCE, "no memory for a piece of %d bytes", PIECE_BYTES);
        free(w.piece);
        rc = comm_agree(c, rc);
    }
    if (rc == ERR_OK)
        rc = comm_agree(c, c->rank == 0 ? name_files(&w) : ERR_OK);
    if (rc != ERR_OK && c->rank == 0)
        undo(&w, rc);
    return rc;
}
