/* Large files written once: every byte in its place, whatever the order and the way, and out of the
 * page cache where it can be seen. */
/* RUN: -n 1 */
#include "base/file.h"
#include "base/file_once.h"
#include "check.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { N_PIECES = 90 };

/* Bytes [begin, end) of a file that are in the page cache, as far as whole pages of it. */
static int64_t bytes_cached(int fd, int64_t begin, int64_t end)
{
    enum { PAGE = 4096 };
    static unsigned char in[65536];
    int64_t first = (begin + PAGE - 1) / PAGE, n = end / PAGE - first, n_in = 0;
    void *map = mmap(NULL, (size_t)(n * PAGE), PROT_READ, MAP_SHARED, fd, (off_t)(first * PAGE));
    REQUIRE(n > 0 && n <= (int64_t)sizeof in && map != MAP_FAILED);
    REQUIRE(mincore(map, (size_t)(n * PAGE), in) == 0);
    munmap(map, (size_t)(n * PAGE));
    for (int64_t i = 0; i < n; i++)
        n_in += in[i] & 1;
    return n_in * PAGE;
}

/* Some file systems accept O_DIRECT and cache all the same: these do as they are told. */
static bool keeps_its_word(const char *path)
{
    enum { EXT4 = 0xEF53, XFS = 0x58465342 };
    struct statfs s;
    if (statfs(path, &s) == 0 && (s.f_type == EXT4 || s.f_type == XFS))
        return true;
    printf("# not on ext4 or xfs: bytes are checked, the page cache is not\n");
    return false;
}

/* Pieces of 1 MiB - 7 bytes from both ends in turns, and many tiny ones between them; a piece's
 * address is its offset modulo a block, but for every fifth.  From piece refuse_from on the disk
 * refuses what comes past the page cache. */
static void test_write_once(const char *path, bool past_cache, int refuse_from)
{
    enum { N = N_PIECES, N_BYTES = (1 << 20) - 7, BLOCK = FILE_ONCE_BLOCK };
    struct file_once f;
    char *bytes = aligned_alloc(BLOCK, N_BYTES + 7 + BLOCK);
    int wrong = 0, n_tiny = 0, fd;
    CHECK(bytes && file_once_open(&f, path, O_CREAT | O_TRUNC, past_cache) == ERR_OK);
    for (int i = 0; i < N; i++) {
        int k = i % 2 ? N - 1 - i / 2 : i / 2;
        int64_t at = (int64_t)k * (N_BYTES + 100000);
        char *from = bytes + (i % 5 == 4 ? 1 : at % BLOCK);
        memset(from, k + 1, N_BYTES);
        if (i == refuse_from && f.direct >= 0) {
            int reader = open(path, O_RDONLY);
            CHECK(dup2(reader, f.direct) == f.direct && close(reader) == 0);
        }
        CHECK(file_once_write(&f, from, N_BYTES, at) == ERR_OK);
        for (int j = 0; j < 100; j += 1 + i / 4, n_tiny++)
            CHECK(file_once_write(&f, "*", 1, at + N_BYTES + (int64_t)j * 999) == ERR_OK);
        int64_t held = 0;
        for (int j = 0; j < f.n_pieces; j++) {
            int at_ring = (f.first + j) % FILE_ONCE_PIECES;
            held += f.piece[at_ring].end - f.piece[at_ring].begin;
        }
        CHECK(f.n_pieces >= 1 && f.n_pieces <= FILE_ONCE_PIECES && held == f.n_bytes &&
              held <= 64 << 20);
    }
    CHECK(refuse_from == N || f.direct < 0);
    bool direct = f.direct >= 0 && keeps_its_word(path);
    CHECK(file_once_close(&f, ERR_OK) == ERR_OK);
    fd = open(path, O_RDONLY);
    for (int k = 0; k < N; k++) {
        int64_t at = (int64_t)k * (N_BYTES + 100000), i = k < N / 2 ? 2 * k : 2 * (N - 1 - k) + 1;
        if (direct && i % 5 != 4)
            CHECK(bytes_cached(fd, at + BLOCK, at + (512 << 10)) == 0);
    }
    for (int k = 0; k < N; k++) {
        int64_t at = (int64_t)k * (N_BYTES + 100000);
        CHECK(file_pread_fd(fd, path, bytes, N_BYTES, at) == ERR_OK);
        for (int j = 0; j < N_BYTES; j++)
            wrong += bytes[j] != (char)(k + 1);
        CHECK(file_pread_fd(fd, path, bytes, 1, at + N_BYTES) == ERR_OK && bytes[0] == '*');
    }
    CHECK(wrong == 0 && n_tiny > 1000);
    close(fd);
    free(bytes);
}

/* No room, and a file that cannot be opened: the first error stays. */
static void test_once_errors(const char *dir)
{
    struct file_once f;
    char bytes[100] = {0};
    CHECK(file_once_open(&f, dir, 0, true) == ERR_RESOURCE);
    CHECK_HAS(err_text(), "cannot open");
    CHECK(file_once_open(&f, "/dev/full", 0, true) == ERR_OK);
    int rc = file_once_write(&f, bytes, sizeof bytes, 0);
    CHECK(rc == ERR_RESOURCE && file_once_close(&f, rc) == ERR_RESOURCE);
    CHECK_HAS(err_text(), "cannot write /dev/full");
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    char dir[256], path[300];
    snprintf(dir, sizeof dir, "%s/stretto-once-XXXXXX", tmp ? tmp : "/tmp");
    REQUIRE(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    TEST ("a large file written in any order has its bytes, and a short tail of them in memory")
        test_write_once(path, false, N_PIECES);
    TEST ("the same past the page cache, with none of its large pieces in memory")
        test_write_once(path, true, N_PIECES);
    TEST ("a disk that refuses that midway gets every byte by way of the page cache")
        test_write_once(path, true, 40);
    TEST ("a file that cannot be opened or written is named")
        test_once_errors(dir);
    CHECK(file_remove_tree(dir) == ERR_OK);
    return check_done();
}
