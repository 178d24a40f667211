/* The seal of a snapshot: a look at all bytes that is cheaper than SQLite's at all rows.  And files
 * that were to be snapshots, and are left over. */
#include "core/ledger/db.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/le.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20, SEAL = 16 };

/* A temporary this old is of a folder that was killed on another machine. */
enum { STALE_SECONDS = 3600 };

static const char word[8] = {'t', 'e', 'r', 'n', 's', 'e', 'a', 'l'};

/* The seal of the first `bytes` of the file. */
static int make_seal(int fd, uint64_t bytes, const char *path, unsigned char seal[SEAL],
                     struct tern_err *err)
{
    char *piece = tern_alloc(PIECE, 1, path, err);
    uint32_t crc = 0;
    int rc = piece ? 0 : -1;

    for (uint64_t at = 0, n; rc == 0 && at < bytes; at += n) {
        n = bytes - at < PIECE ? bytes - at : PIECE;
        rc = tern_fs_pread(fd, piece, n, at, path, err);
        if (rc == 0)
            crc = tern_crc32c(crc, piece, n);
    }
    free(piece);
    memcpy(seal, word, sizeof word);
    tern_le_put32(seal + sizeof word, crc);
    tern_le_put32(seal + sizeof word + 4, 0);
    return rc;
}

int tern_ledger_db_seal(sqlite3 *db, int fd, const char *path, struct tern_err *err)
{
    unsigned char seal[SEAL];
    const off_t end = lseek(fd, 0, SEEK_END);

    (void)db;
    if (end < 0)
        return tern_err_sys(err, "%s: cannot seek", path);
    return make_seal(fd, (uint64_t)end, path, seal, err) < 0
               ? -1
               : tern_fs_write_at(fd, (uint64_t)end, seal, sizeof seal, path, err);
}

bool tern_ledger_db_is_sealed(const char *path, const struct tern_ledger_db_stamp *stamp)
{
    unsigned char seal[SEAL], theirs[SEAL];
    struct tern_ledger_db_stamp now;
    bool is = false;
    const int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));

    if (fd < 0)
        return false;
    tern_ledger_db_stamp_of(fd, &now);
    if (tern_ledger_db_stamp_same(&now, stamp) && now.bytes > SEAL) {
        const uint64_t bytes = (uint64_t)now.bytes - SEAL;
        is = tern_fs_pread(fd, theirs, SEAL, bytes, path, NULL) == 0 &&
             memcmp(theirs, word, sizeof word) == 0 &&
             make_seal(fd, bytes, path, seal, NULL) == 0 && memcmp(seal, theirs, SEAL) == 0;
    }
    close(fd);
    return is;
}

void tern_ledger_db_sweep(const char *path)
{
    char *dir = tern_fs_dirname(path), *start = tern_strf("%s.tmp-", tern_fs_basename(path));
    DIR *d = TERN_AGAIN_PTR(opendir(dir));

    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (tern_str_starts(e->d_name, start) &&
            TERN_AGAIN(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) == 0 &&
            (tern_fs_temp_left(e->d_name) || time(NULL) - st.st_mtime > STALE_SECONDS))
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
    free(start);
    free(dir);
}
