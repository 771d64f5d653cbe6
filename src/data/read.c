/* Files as they are or packed by gzip, through zlib. */
#include "base/file.h"
#include "data/data_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static bool is_gzip(const void *bytes, size_t n_bytes)
{
    return n_bytes >= 2 && memcmp(bytes, "\x1f\x8b", 2) == 0;
}

/* A pipe would make open() wait for ever, so this is asked before. */
static int check_regular(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        FAIL(ERR_DATA, "cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        FAIL(ERR_DATA, "%s is not a regular file", path);
    return ERR_OK;
}

static size_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX / 2;
}

/* Room for at least one more byte of output, doubling as it grows. */
static int grow(const char *path, char **buf, size_t *cap, size_t used, size_t max_bytes)
{
    char shown[32];
    if (used < *cap)
        return ERR_OK;
    if (used >= max_bytes)
        FAIL(ERR_RESOURCE, "%s unpacks to more than %s", path,
             text_bytes(shown, (double)max_bytes));
    size_t more = *cap <= max_bytes / 2 ? *cap * 2 : max_bytes;
    char *bigger = realloc(*buf, more + 1);
    if (!bigger)
        FAIL(ERR_RESOURCE, "no memory to unpack %s: %s wanted", path,
             text_bytes(shown, (double)more));
    *buf = bigger;
    *cap = more;
    return ERR_OK;
}

/* zlib counts in unsigned int. */
static uInt piece(size_t n_bytes)
{
    return n_bytes < (size_t)1 << 30 ? (uInt)n_bytes : (uInt)1 << 30;
}

static int inflate_all(z_stream *z, const char *path, const char *packed, size_t n_packed,
                       size_t max_bytes, char **out, size_t *n_bytes)
{
    size_t in = 0, n = 0, cap = n_packed < max_bytes / 4 ? n_packed * 4 : max_bytes;
    if (!(*out = malloc(cap + 1)))
        FAIL(ERR_RESOURCE, "no memory to unpack the %zu bytes of %s", n_packed, path);
    for (;;) {
        TRY(grow(path, out, &cap, n, max_bytes));
        z->next_in = (z_const Bytef *)(uintptr_t)(packed + in);
        z->avail_in = piece(n_packed - in);
        z->next_out = (Bytef *)*out + n;
        z->avail_out = piece(cap - n);
        uInt had_in = z->avail_in, had_out = z->avail_out;
        int rc = inflate(z, Z_NO_FLUSH);
        in += had_in - z->avail_in;
        n += had_out - z->avail_out;
        if (rc == Z_STREAM_END && in == n_packed)
            break;
        if (rc == Z_STREAM_END) { /* another member must follow */
            if (!is_gzip(packed + in, n_packed - in))
                FAIL(ERR_DATA, "%s: bytes that are not gzip follow its end at byte %zu", path, in);
            rc = inflateReset(z);
        } else if (in == n_packed && z->avail_out > 0) {
            FAIL(ERR_DATA, "%s is truncated: its gzip stream has no end", path);
        }
        if (rc == Z_MEM_ERROR)
            FAIL(ERR_RESOURCE, "no memory to unpack %s", path);
        if (rc != Z_OK && rc != Z_BUF_ERROR)
            FAIL(ERR_DATA, "%s is damaged near byte %zu: %s", path, in,
                 z->msg ? z->msg : "not gzip");
    }
    (*out)[n] = 0;
    *n_bytes = n;
    return ERR_OK;
}

int data_unpack(const char *path, const char *packed, size_t n_packed, size_t max_bytes, char **out,
                size_t *n_bytes)
{
    z_stream z = {0};
    *out = NULL;
    if (inflateInit2(&z, 15 + 16) != Z_OK) /* the largest window; 16: a gzip header, not zlib's */
        FAIL(ERR_RESOURCE, "no memory to unpack %s", path);
    int rc = inflate_all(&z, path, packed, n_packed, max_bytes, out, n_bytes);
    inflateEnd(&z);
    if (rc != ERR_OK) {
        free(*out);
        *out = NULL;
        return rc;
    }
    char *fit = realloc(*out, *n_bytes + 1);
    if (fit)
        *out = fit;
    return ERR_OK;
}

int data_read(const char *path, char **out, size_t *n_bytes)
{
    char *raw;
    size_t n_raw, limit = memory_bytes();
    TRY(check_regular(path));
    TRY(file_read(path, limit, ERR_DATA, &raw, &n_raw));
    if (!is_gzip(raw, n_raw)) {
        *out = raw;
        *n_bytes = n_raw;
        return ERR_OK;
    }
    int rc = data_unpack(path, raw, n_raw, limit, out, n_bytes);
    free(raw);
    return rc;
}

int data_head(const char *path, void *out, size_t *n_bytes)
{
    TRY(check_regular(path));
    errno = 0;
    gzFile f = gzopen(path, "rbe"); /* reads what is not gzip as it is */
    if (!f)
        FAIL(ERR_DATA, "cannot open %s: %s", path, errno ? strerror(errno) : "no memory");
    int n = gzread(f, out, (unsigned)*n_bytes);
    gzclose(f);
    if (n < 0)
        FAIL(ERR_DATA, "%s is damaged: it begins like gzip, but cannot be unpacked", path);
    *n_bytes = (size_t)n;
    return ERR_OK;
}
