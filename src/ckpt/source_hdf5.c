/* Anybody's HDF5 file as a source: contiguous datasets, by their place.  libhdf5 itself crashes on
 * some damaged files, so a child process opens the file and tells what is where; its death is an
 * error message.  Values are read without HDF5. */
#include "ckpt/ckpt_impl.h"
#include "ckpt/source.h"

#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_DEPTH = 16, MAX_TEXT = 64 << 20, TIME_LIMIT_S = 60, LONGEST = 512 };

/* ---- the child: everything up to a text of JSON */

static const char *type_word(hid_t type)
{
    static const char *const none = "unknown";
    size_t n = H5Tget_size(type), sign, e, n_e, m, n_m;
    H5T_class_t cls = H5Tget_class(type);
    if ((cls == H5T_FLOAT || cls == H5T_INTEGER) && n > 1 && H5Tget_order(type) != H5T_ORDER_LE)
        return none;
    if (cls == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2)
        return n == 4 ? "int32" : n == 8 ? "int64" : none;
    if (cls != H5T_FLOAT)
        return none;
    if (n != 2)
        return n == 4 ? "float32" : n == 8 ? "float64" : none;
    if (H5Tget_fields(type, &sign, &e, &n_e, &m, &n_m) < 0)
        return none;
    return n_m == 10 ? "float16" : n_m == 7 ? "bfloat16" : none;
}

/* A text of fixed size at an object, or nothing. */
static void put_attribute(hid_t object, const char *name, struct text *t)
{
    char value[LONGEST] = {0};
    if (H5Aexists(object, name) <= 0)
        return;
    hid_t at = H5Aopen(object, name, H5P_DEFAULT), type = at < 0 ? -1 : H5Aget_type(at);
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
        H5Tget_size(type) < LONGEST && H5Aread(at, type, value) >= 0) {
        text_printf(t, ", \"%s\": ", name);
        text_json_string(t, value);
    }
    if (type >= 0)
        H5Tclose(type);
    if (at >= 0)
        H5Aclose(at);
}

static void put_dataset(hid_t set, const char *path, struct text *t)
{
    hsize_t dim[H5S_MAX_RANK] = {0};
    hid_t type = H5Dget_type(set), space = H5Dget_space(set), list = H5Dget_create_plist(set);
    int n_dims = space < 0 ? -1 : H5Sget_simple_extent_dims(space, dim, NULL);
    bool contiguous =
        list >= 0 && H5Pget_layout(list) == H5D_CONTIGUOUS && H5Pget_external_count(list) == 0;
    haddr_t at = contiguous ? H5Dget_offset(set) : HADDR_UNDEF;
    text_printf(t, "%s{\"path\": ", t->n_bytes > 1 ? ",\n" : "");
    text_json_string(t, path);
    text_printf(t, ", \"dtype\": \"%s\", \"part\": %s, \"shape\": [", type_word(type),
                H5Aexists(set, "begin") > 0 ? "true" : "false");
    for (int d = 0; d < n_dims; d++)
        text_printf(t, "%s%llu", d ? ", " : "", (unsigned long long)dim[d]);
    text_printf(t, "]");
    if (at != HADDR_UNDEF)
        text_printf(t, ", \"offset\": %llu", (unsigned long long)at);
    put_attribute(set, "layout", t);
    put_attribute(set, "alias", t);
    text_printf(t, "}");
    H5Pclose(list);
    H5Sclose(space);
    H5Tclose(type);
}

static void walk(hid_t group, const char *path, int depth, struct text *t)
{
    H5G_info_t info;
    if (depth > MAX_DEPTH || H5Gget_info(group, &info) < 0)
        return;
    for (hsize_t i = 0; i < info.nlinks && t->n_bytes < MAX_TEXT; i++) {
        char name[LONGEST];
        struct text full = {0};
        if (H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                               H5P_DEFAULT) < 0)
            continue;
        H5L_info_t link; /* a link to another file is no part of this one */
        if (H5Lget_info(group, name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD)
            continue;
        hid_t object = H5Oopen(group, name, H5P_DEFAULT);
        text_printf(&full, "%s%s%s", path, *path ? "/" : "", name);
        if (object >= 0 && H5Iget_type(object) == H5I_DATASET)
            put_dataset(object, full.s, t);
        else if (object >= 0 && H5Iget_type(object) == H5I_GROUP)
            walk(object, full.s, depth + 1, t);
        text_clear(&full);
        if (object >= 0)
            H5Oclose(object);
    }
}

_Noreturn static void child(const char *path, int to)
{
    struct text t = {0};
    alarm(TIME_LIMIT_S);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (err_fault(0, "hdf5.open") != ERR_OK)
        quick_exit(3);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0)
        quick_exit(1);
    text_printf(&t, "[");
    walk(file, "", 0, &t);
    text_printf(&t, "]");
    for (size_t at = 0; at < t.n_bytes;) {
        ssize_t n = write(to, t.s + at, t.n_bytes - at);
        if (n < 0)
            quick_exit(2);
        at += (size_t)n;
    }
    quick_exit(0); /* no handlers of the parent's, MPI's among them */
}

/* ---- the parent: what the child says is as little trusted as the file */

static int read_all(int from, struct text *t)
{
    char buf[1 << 16];
    for (ssize_t n; (n = read(from, buf, sizeof buf)) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || t->n_bytes > 2 * (size_t)MAX_TEXT)
            FAIL(ERR_DATA, "its description cannot be read: %s", strerror(errno));
        text_add(t, buf, (size_t)n);
    }
    return ERR_OK;
}

static int ask_child(const char *path, struct text *t)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        FAIL(ERR_RESOURCE, "no pipe to read %s: %s", path, strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(path, ends[1]);
    }
    close(ends[1]);
    int rc = pid < 0 ? err_set(ERR_RESOURCE, "no process to read %s: %s", path, strerror(errno))
                     : read_all(ends[0], t);
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc == ERR_OK && WIFSIGNALED(status))
        FAIL(ERR_DATA, "%s: libhdf5 did not survive it (%s): it is damaged", path,
             strsignal(WTERMSIG(status)));
    if (rc == ERR_OK && WEXITSTATUS(status) != 0)
        FAIL(ERR_DATA, "%s: libhdf5 cannot open it: it is damaged or no HDF5 file", path);
    return rc;
}

/* The last part of the path is the name, what stands before it the group; at the top: the model. */
static int take_dataset(struct source *s, const struct json *j, struct ckpt_array *x,
                        const char **word, int64_t *offset)
{
    const char *path;
    const struct json *dims = json_get(j, "shape"), *part = json_get(j, "part");
    TRY(json_get_string(j, "path", &path));
    TRY(json_get_string(j, "dtype", word));
    const char *slash = strrchr(path, '/');
    *x = (struct ckpt_array){.group = slash ? arena_strndup(s->arena, path, (size_t)(slash - path))
                                            : "model",
                             .name = slash ? slash + 1 : path};
    if (dtype_parse(*word, &x->dtype) != ERR_OK)
        x->dtype = DTYPE_COUNT;
    if (!dims || dims->n_children > SHAPE_MAX_DIMS)
        FAIL(ERR_DATA, "%s: a dataset of more than %d dimensions", path, SHAPE_MAX_DIMS);
    for (const struct json *d = dims->child; d; d = d->next)
        TRY(json_as_i64(d, &x->shape.dim[x->shape.n_dims++]));
    if (json_get(j, "layout"))
        TRY(json_get_string(j, "layout", &x->layout));
    if (json_get(j, "alias"))
        TRY(json_get_string(j, "alias", &x->alias));
    if (part && part->type == JSON_TRUE)
        FAIL(ERR_DATA,
             "%s is a part of a tensor: a shard is read in its checkpoint's folder, with "
             "manifest.json",
             path);
    if (!json_get(j, "offset"))
        FAIL(ERR_DATA,
             "%s is chunked, compressed, compact or empty; only contiguous datasets are "
             "read",
             path);
    return json_get_i64(j, "offset", offset);
}

static int check_place(const struct ckpt_array *x, int64_t offset, int64_t n_file)
{
    struct ckpt_array named = *x;
    if (x->dtype == DTYPE_COUNT)
        named.dtype = DTYPE_F32;
    TRY(array_check(&named, ERR_DATA));
    int64_t n_bytes = shape_elems(&x->shape) * (int64_t)dtype_bytes(named.dtype);
    if (x->dtype != DTYPE_COUNT && (offset < 0 || n_bytes > n_file || offset > n_file - n_bytes))
        FAIL(ERR_DATA, "%s/%s: %lld bytes at %lld leave the %lld bytes of the file", x->group,
             x->name, (long long)n_bytes, (long long)offset, (long long)n_file);
    return ERR_OK;
}

static int take_all(struct source *s, const char *text, size_t n_bytes, int64_t n_file)
{
    const struct json *root;
    TRY(json_parse(text, n_bytes, s->arena, &root));
    if (root->type != JSON_ARRAY || root->n_children == 0)
        FAIL(ERR_DATA, "it holds no datasets");
    size_t n = (size_t)root->n_children;
    struct ckpt_array *arrays = arena_alloc(s->arena, n * sizeof *arrays);
    const char **words = arena_alloc(s->arena, n * sizeof *words);
    const struct ckpt_array **sorted;
    struct source_files *f = s->impl;
    f->place = arena_alloc(s->arena, n * sizeof *f->place);
    for (const struct json *j = root->child; j; j = j->next) {
        int i = s->n_arrays++;
        TRY(take_dataset(s, j, &arrays[i], &words[i], &f->place[i].offset));
        TRY(check_place(&arrays[i], f->place[i].offset, n_file));
    }
    s->arrays = arrays;
    s->dtype_words = words;
    return arrays_sort(arrays, s->n_arrays, s->arena, ERR_DATA, &sorted);
}

static bool hdf5_fits(const char *path, bool is_dir, const unsigned char head[8])
{
    static const unsigned char mark[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    (void)path;
    return !is_dir && memcmp(head, mark, sizeof mark) == 0;
}

static int hdf5_open(struct source *s)
{
    struct source_files *f = source_files_new(s, 1, 0);
    struct text t = {0};
    int64_t n_bytes;
    f->path[0] = s->path;
    TRY(source_open_file(s->path, &f->fd[0], &n_bytes));
    int rc = ask_child(s->path, &t);
    if (rc == ERR_OK && (rc = take_all(s, t.s ? t.s : "", t.n_bytes, n_bytes)) != ERR_OK)
        err_prefix("%s", s->path);
    text_clear(&t);
    return rc;
}

const struct source_ops hdf5_source = {
    .name = "HDF5",
    .fits = hdf5_fits,
    .open = hdf5_open,
    .read = source_files_read,
    .close = source_files_close,
};
