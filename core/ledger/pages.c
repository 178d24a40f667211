#include "core/ledger/pages.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/le.h"
#include "core/base/str.h"
#include "core/ledger/parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HEAD = 32,
    VERSION = 1,
    PIECE = 1 << 16, /* bytes read at once; a page has no more */
    /* SQLite's header of a file (https://sqlite.org/fileformat2.html), big-endian.  It is read by
     * itself, too, and then page 1 with it. */
    FILE_HEADER = 100,
    PAGE_BYTES_AT = 16,
    PAGES_AT = 28,
};

static const char word[8] = {'t', 'e', 'r', 'n', 'p', 'a', 'g', 'e'};

/* The size and number of pages, as SQLite's header has them. */
struct shape {
    uint32_t page_bytes, pages;
};

static struct shape shape_of(const uint8_t header[FILE_HEADER])
{
    const uint8_t *b = header + PAGE_BYTES_AT, *n = header + PAGES_AT;
    const uint32_t bytes = (uint32_t)b[0] << 8 | b[1];

    return (struct shape){.page_bytes = bytes == 1 ? 65536 : bytes, /* it has 16 bits there */
                          .pages = (uint32_t)n[0] << 24 | (uint32_t)n[1] << 16 |
                                   (uint32_t)n[2] << 8 | n[3]};
}

/* ---------------------------------------------------------------- writing */

/* The checksums of all pages of `fd`. */
static int sum_pages(int fd, const char *path, struct shape shape, struct tern_buf *sums,
                     struct tern_err *err)
{
    uint8_t *page = tern_alloc(shape.page_bytes, 1, path, err), sum[4];
    int rc = page ? 0 : -1;

    for (uint32_t i = 0; rc == 0 && i < shape.pages; i++) {
        rc = tern_fs_pread(fd, page, shape.page_bytes, (uint64_t)i * shape.page_bytes, path, err);
        if (rc == 0) {
            tern_le_put32(sum, tern_crc32c(0, page, shape.page_bytes));
            tern_buf_add(sums, sum, sizeof sum);
        }
    }
    free(page);
    return rc == 0 ? tern_buf_check(sums, path, err) : rc;
}

static int write_seal(int fd, const char *path, struct tern_err *err)
{
    uint8_t header[FILE_HEADER], head[HEAD] = {0}, *to = head + sizeof word;
    struct tern_buf sums = {.max = SIZE_MAX};
    const off_t end = lseek(fd, 0, SEEK_END);
    int rc = end < 0 ? tern_err_sys(err, "%s: cannot seek", path)
                     : tern_fs_pread(fd, header, sizeof header, 0, path, err);

    if (rc < 0)
        return -1;
    const struct shape shape = shape_of(header);
    tern_assert_cmp((uint64_t)shape.page_bytes * shape.pages, ==, (uint64_t)end);
    rc = sum_pages(fd, path, shape, &sums, err);
    if (rc == 0) {
        memcpy(head, word, sizeof word);
        to = tern_le_put32(to, VERSION);
        to = tern_le_put32(to, shape.page_bytes);
        to = tern_le_put32(to, shape.pages);
        to = tern_le_put32(to, tern_crc32c(0, sums.data, sums.len));
        to = tern_le_put32(to, 0);
        tern_le_put32(to, tern_crc32c(0, head, HEAD - 4));
        rc = tern_fs_write(fd, head, HEAD, path, err);
    }
    if (rc == 0)
        rc = tern_fs_write(fd, sums.data, sums.len, path, err);
    tern_buf_free(&sums);
    return rc;
}

int tern_ledger_pages_finish(sqlite3 *db, int fd, const char *path, struct tern_err *err)
{
    return write_seal(fd, path, err) < 0 ? -1 : tern_ledger_parts_write(db, fd, path, err);
}

/* ---------------------------------------------------------------- reading
 *
 * Each call goes on to SQLite's own file, which lies behind this struct; only reads are looked at.
 */

struct sealed {
    sqlite3_file file;
    struct shape shape;
    uint8_t *sums; /* [4 * pages]; NULL: there is no seal */
};

static sqlite3_vfs *under; /* SQLite's own */

static sqlite3_file *own(sqlite3_file *f)
{
    return (sqlite3_file *)((struct sealed *)f + 1);
}

static int read_pieces(sqlite3_file *f, uint8_t *to, uint64_t n, uint64_t at)
{
    int rc = SQLITE_OK;

    for (uint64_t done = 0, piece; rc == SQLITE_OK && done < n; done += piece) {
        piece = n - done < PIECE ? n - done : PIECE;
        rc = f->pMethods->xRead(f, to + done, (int)piece, (sqlite3_int64)(at + done));
    }
    return rc;
}

/* Fill s->sums, if there is a seal and it is whole. */
static void read_seal(struct sealed *s)
{
    sqlite3_file *f = own(&s->file);
    uint8_t header[FILE_HEADER], head[HEAD];
    sqlite3_int64 end;

    if (f->pMethods->xFileSize(f, &end) != SQLITE_OK ||
        read_pieces(f, header, sizeof header, 0) != SQLITE_OK)
        return;
    const struct shape shape = shape_of(header);
    const uint64_t at = (uint64_t)shape.page_bytes * shape.pages,
                   bytes = (uint64_t)shape.pages * sizeof(uint32_t);
    if (at + HEAD + bytes > (uint64_t)end || read_pieces(f, head, HEAD, at) != SQLITE_OK ||
        memcmp(head, word, sizeof word) != 0 || tern_le_get32(head + 8) != VERSION ||
        tern_le_get32(head + 12) != shape.page_bytes || tern_le_get32(head + 16) != shape.pages ||
        tern_crc32c(0, head, HEAD - 4) != tern_le_get32(head + HEAD - 4))
        return;
    uint8_t *sums = malloc(bytes);
    if (sums && read_pieces(f, sums, bytes, at + HEAD) == SQLITE_OK &&
        tern_crc32c(0, sums, bytes) == tern_le_get32(head + 20)) {
        s->shape = shape;
        s->sums = sums;
        return;
    }
    free(sums);
}

static int sealed_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    const struct sealed *s = (struct sealed *)f;
    const uint32_t size = s->shape.page_bytes;
    const int rc = own(f)->pMethods->xRead(own(f), to, n, at);

    if (!s->sums || (uint64_t)at >= (uint64_t)size * s->shape.pages)
        return rc;
    if (rc == SQLITE_IOERR_SHORT_READ)
        return SQLITE_CORRUPT;
    if (rc != SQLITE_OK || at + n <= FILE_HEADER)
        return rc;
    const uint64_t page = (uint64_t)at / size;
    return (uint32_t)n == size && (uint64_t)at % size == 0 &&
                   tern_crc32c(0, to, size) == tern_le_get32(s->sums + 4 * page)
               ? SQLITE_OK
               : SQLITE_CORRUPT;
}

static int sealed_close(sqlite3_file *f)
{
    free(((struct sealed *)f)->sums);
    return own(f)->pMethods->xClose(own(f));
}

static int sealed_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    (void)f, (void)from, (void)n, (void)at;
    return SQLITE_READONLY; /* a snapshot is replaced, never changed */
}

static int sealed_truncate(sqlite3_file *f, sqlite3_int64 bytes)
{
    (void)f, (void)bytes;
    return SQLITE_READONLY;
}

static int sealed_sync(sqlite3_file *f, int flags)
{
    return own(f)->pMethods->xSync(own(f), flags);
}

static int sealed_size(sqlite3_file *f, sqlite3_int64 *ret_bytes)
{
    return own(f)->pMethods->xFileSize(own(f), ret_bytes);
}

static int sealed_lock(sqlite3_file *f, int kind)
{
    return own(f)->pMethods->xLock(own(f), kind);
}

static int sealed_unlock(sqlite3_file *f, int kind)
{
    return own(f)->pMethods->xUnlock(own(f), kind);
}

static int sealed_is_reserved(sqlite3_file *f, int *ret_is)
{
    return own(f)->pMethods->xCheckReservedLock(own(f), ret_is);
}

static int sealed_control(sqlite3_file *f, int what, void *arg)
{
    return own(f)->pMethods->xFileControl(own(f), what, arg);
}

static int sealed_sector(sqlite3_file *f)
{
    return own(f)->pMethods->xSectorSize(own(f));
}

static int sealed_device(sqlite3_file *f)
{
    return own(f)->pMethods->xDeviceCharacteristics(own(f));
}

/* Version 1: without memory maps, by which SQLite would pass over sealed_read. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = sealed_close,
    .xRead = sealed_read,
    .xWrite = sealed_write,
    .xTruncate = sealed_truncate,
    .xSync = sealed_sync,
    .xFileSize = sealed_size,
    .xLock = sealed_lock,
    .xUnlock = sealed_unlock,
    .xCheckReservedLock = sealed_is_reserved,
    .xFileControl = sealed_control,
    .xSectorSize = sealed_sector,
    .xDeviceCharacteristics = sealed_device,
};

static int sealed_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags,
                       int *ret_flags)
{
    struct sealed *s = (struct sealed *)f;

    (void)vfs;
    if (!(flags & SQLITE_OPEN_MAIN_DB)) /* a temporary file of a query */
        return under->xOpen(under, name, f, flags, ret_flags);
    *s = (struct sealed){0};
    const int rc = under->xOpen(under, name, own(f), flags, ret_flags);
    if (rc != SQLITE_OK)
        return rc;
    s->file.pMethods = &methods;
    read_seal(s);
    return SQLITE_OK;
}

static sqlite3_vfs vfs;

static void install(void)
{
    under = sqlite3_vfs_find(NULL);
    vfs = *under;
    vfs.zName = "tern-sealed";
    vfs.pNext = NULL;
    vfs.szOsFile += (int)sizeof(struct sealed);
    vfs.xOpen = sealed_open;
    sqlite3_vfs_register(&vfs, /* makeDflt= */ 0);
}

const char *tern_ledger_pages_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, install);
    return vfs.zName;
}

bool tern_ledger_pages_sealed(sqlite3 *db)
{
    sqlite3_file *f = NULL;

    return sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f) == SQLITE_OK && f &&
           f->pMethods == &methods && ((struct sealed *)f)->sums;
}
