/* A file as HDF5 sees it: groups, contiguous datasets with early allocation, attributes.  Never
 * values: ranks write those by offset.
 * HDF5 writes into memory (a memfd whose holes are the values), because it crashes where its last
 * write of metadata fails, and because many small writes are what parallel file systems are slow
 * at.  Nothing here depends on the time of day: equal input gives equal bytes. */
#include "ckpt/ckpt_impl.h"

#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct layout {
    const char *path;                            /* for messages */
    hid_t file, links, groups, datasets, scalar; /* file, property lists, the scalar space */
    hid_t group;                                 /* the one that is filled */
    hid_t type[DTYPE_COUNT];
};

static herr_t first_text(unsigned n, const H5E_error2_t *e, void *buf)
{
    if (n == 0)
        snprintf(buf, 256, "%s (%s)", e->desc ? e->desc : "unknown error", e->func_name);
    return 0;
}

static int h5_fail(const struct layout *l, const char *what)
{
    char text[256] = "unknown error";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_text, text);
    FAIL(ERR_RESOURCE, "HDF5 cannot make %s in %s: %s", what, l->path, text);
}

/* A float of two bytes: mantissa bits from 0, then exponent bits, then the sign. */
static hid_t small_float(size_t n_mantissa, size_t n_exponent, size_t bias)
{
    hid_t t = H5Tcopy(H5T_IEEE_F32LE);
    if (t < 0 || H5Tset_fields(t, 15, n_mantissa, n_exponent, 0, n_mantissa) < 0 ||
        H5Tset_precision(t, 16) < 0 || H5Tset_size(t, 2) < 0 || H5Tset_ebias(t, bias) < 0)
        return -1;
    return t;
}

static int types_create(struct layout *l)
{
    l->type[DTYPE_F32] = H5Tcopy(H5T_IEEE_F32LE);
    l->type[DTYPE_F64] = H5Tcopy(H5T_IEEE_F64LE);
    l->type[DTYPE_BF16] = small_float(7, 8, 127);
    l->type[DTYPE_F16] = small_float(10, 5, 15);
    l->type[DTYPE_I32] = H5Tcopy(H5T_STD_I32LE);
    l->type[DTYPE_I64] = H5Tcopy(H5T_STD_I64LE);
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (l->type[i] < 0)
            return h5_fail(l, "its types");
    return ERR_OK;
}

static int lists_create(struct layout *l)
{
    l->links = H5Pcreate(H5P_LINK_CREATE);
    l->groups = H5Pcreate(H5P_GROUP_CREATE);
    l->datasets = H5Pcreate(H5P_DATASET_CREATE);
    l->scalar = H5Screate(H5S_SCALAR);
    if (l->links < 0 || l->groups < 0 || l->datasets < 0 || l->scalar < 0 ||
        H5Pset_char_encoding(l->links, H5T_CSET_UTF8) < 0 ||
        H5Pset_obj_track_times(l->groups, false) < 0 ||
        H5Pset_obj_track_times(l->datasets, false) < 0 ||
        H5Pset_layout(l->datasets, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(l->datasets, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(l->datasets, H5D_FILL_TIME_NEVER) < 0)
        return h5_fail(l, "its property lists");
    return types_create(l);
}

/* HDF5 would hold the headers of all datasets until it closes the file; a model of thousands of
 * tensors is laid out in a few hundred KiB. */
static bool cache_limit(hid_t access)
{
    H5AC_cache_config_t c = {.version = H5AC__CURR_CACHE_CONFIG_VERSION};
    if (H5Pget_mdc_config(access, &c) < 0)
        return false;
    c.set_initial_size = true;
    c.initial_size = c.min_size = c.max_size = 256 << 10;
    c.incr_mode = H5C_incr__off;
    c.flash_incr_mode = H5C_flash_incr__off;
    c.decr_mode = H5C_decr__off;
    return H5Pset_mdc_config(access, &c) >= 0 && H5Pset_evict_on_close(access, true) >= 0;
}

/* libver V18: version 2 headers carry checksums, the default ones do not.  The alignment's
 * threshold is 1: small tensors start at a page of their own as well.  The stdio driver, because
 * the default one insists on a real path behind the name. */
static int file_create(struct layout *l, int fd)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE);
    if (access >= 0 && create >= 0 && H5Pset_fapl_stdio(access) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) >= 0 &&
        H5Pset_alignment(access, 1, CKPT_ALIGN) >= 0 && cache_limit(access) &&
        H5Pset_obj_track_times(create, false) >= 0)
        l->file = H5Fcreate(name, H5F_ACC_TRUNC, create, access);
    int rc = l->file < 0 ? h5_fail(l, "a file") : ERR_OK;
    H5Pclose(access);
    H5Pclose(create);
    return rc;
}

static int attribute_create(const struct layout *l, hid_t object, const char *name, hid_t space,
                            hid_t type, const void *value)
{
    hid_t at = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    int rc = at < 0 || H5Awrite(at, type, value) < 0 ? h5_fail(l, name) : ERR_OK;
    if (at >= 0 && H5Aclose(at) < 0 && rc == ERR_OK)
        rc = h5_fail(l, name);
    return rc;
}

static int text_create(const struct layout *l, hid_t object, const char *name, const char *value)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    int rc = ERR_OK;
    if (type < 0 || H5Tset_size(type, strlen(value) + 1) < 0 ||
        H5Tset_cset(type, H5T_CSET_UTF8) < 0)
        rc = h5_fail(l, name);
    if (rc == ERR_OK)
        rc = attribute_create(l, object, name, l->scalar, type, value);
    H5Tclose(type);
    return rc;
}

static int group_close(struct layout *l)
{
    if (l->group >= 0 && H5Gclose(l->group) < 0)
        return h5_fail(l, "a group");
    l->group = -1;
    return ERR_OK;
}

/* Every part of a path that is not there yet, each without a time stamp; l->group is the last. */
static int group_create(struct layout *l, const char *group)
{
    char path[512];
    TRY(group_close(l));
    for (size_t n = 0; group[n];) {
        n += (n > 0) + strcspn(group + n + (n > 0), "/");
        snprintf(path, sizeof path, "%.*s", (int)n, group);
        htri_t there = H5Lexists(l->file, path, H5P_DEFAULT);
        hid_t g = there ? -1 : H5Gcreate2(l->file, path, l->links, l->groups, H5P_DEFAULT);
        if (there < 0 || (!there && (g < 0 || H5Gclose(g) < 0)))
            return h5_fail(l, path);
    }
    l->group = H5Gopen2(l->file, group, H5P_DEFAULT);
    return l->group < 0 ? h5_fail(l, group) : ERR_OK;
}

/* What a dataset says of the array that it is (a part of). */
static int describe(const struct layout *l, hid_t set, const struct dataset *d)
{
    const struct ckpt_array *x = d->of;
    if (!x)
        return ERR_OK;
    if (x->layout)
        TRY(text_create(l, set, "layout", x->layout));
    if (x->alias)
        TRY(text_create(l, set, "alias", x->alias));
    if (d->begin < 0)
        return ERR_OK;
    TRY(attribute_create(l, set, "begin", l->scalar, H5T_NATIVE_INT64, &d->begin));
    if (x->shape.n_dims == 0)
        return ERR_OK;
    hsize_t n = (hsize_t)x->shape.n_dims;
    hid_t space = H5Screate_simple(1, &n, NULL);
    int rc = space < 0
                 ? h5_fail(l, "global_shape")
                 : attribute_create(l, set, "global_shape", space, H5T_NATIVE_INT64, x->shape.dim);
    if (space >= 0)
        H5Sclose(space);
    return rc;
}

static int dataset_create(const struct layout *l, struct dataset *d)
{
    hsize_t dim[SHAPE_MAX_DIMS];
    for (int i = 0; i < d->shape.n_dims; i++)
        dim[i] = (hsize_t)d->shape.dim[i];
    hid_t space =
        d->shape.n_dims ? H5Screate_simple(d->shape.n_dims, dim, NULL) : H5Screate(H5S_SCALAR);
    hid_t set = -1;
    if (space >= 0)
        set = H5Dcreate2(l->group, d->name, l->type[d->dtype], space, l->links, l->datasets,
                         H5P_DEFAULT);
    int rc = set < 0 ? h5_fail(l, d->name) : describe(l, set, d);
    if (rc == ERR_OK) {
        haddr_t at = H5Dget_offset(set);
        if (at == HADDR_UNDEF || at % CKPT_ALIGN != 0)
            rc = err_set(ERR_INTERNAL, "HDF5 gives %s/%s no aligned place in %s", d->group, d->name,
                         l->path);
        d->offset = (int64_t)at;
    }
    if (set >= 0 && H5Dclose(set) < 0 && rc == ERR_OK)
        rc = h5_fail(l, d->name);
    if (space >= 0)
        H5Sclose(space);
    return rc;
}

static int layout_fill(struct layout *l, int fd, int64_t step, struct placement *p)
{
    TRY(lists_create(l));
    TRY(file_create(l, fd));
    TRY(text_create(l, l->file, "format", CKPT_FORMAT));
    TRY(attribute_create(l, l->file, "step", l->scalar, H5T_NATIVE_INT64, &step));
    for (int i = 0; i < p->n_sets; i++) {
        if (i == 0 || strcmp(p->set[i].group, p->set[i - 1].group) != 0)
            TRY(group_create(l, p->set[i].group));
        TRY(dataset_create(l, &p->set[i]));
    }
    return group_close(l);
}

static void layout_close(struct layout *l)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (l->type[i] >= 0)
            H5Tclose(l->type[i]);
    if (l->group >= 0)
        H5Gclose(l->group);
    if (l->scalar >= 0)
        H5Sclose(l->scalar);
    if (l->links >= 0)
        H5Pclose(l->links);
    if (l->groups >= 0)
        H5Pclose(l->groups);
    if (l->datasets >= 0)
        H5Pclose(l->datasets);
}

int layout_create(const char *path, int64_t step, struct placement *p, int *fd)
{
    struct layout l = {path, -1, -1, -1, -1, -1, -1, {0}};
    for (int i = 0; i < DTYPE_COUNT; i++)
        l.type[i] = -1;
    *fd = memfd_create("layout", MFD_CLOEXEC);
    if (*fd < 0)
        FAIL(ERR_RESOURCE, "no memory to lay out %s: %s", path, strerror(errno));
    H5E_auto2_t print;
    void *print_to;
    H5Eget_auto2(H5E_DEFAULT, &print, &print_to);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* the one message is ours */
    int rc = layout_fill(&l, *fd, step, p);
    layout_close(&l);
    if (l.file >= 0 && H5Fclose(l.file) < 0 && rc == ERR_OK)
        rc = h5_fail(&l, "the end");
    H5Eset_auto2(H5E_DEFAULT, print, print_to);
    if (rc != ERR_OK) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}
