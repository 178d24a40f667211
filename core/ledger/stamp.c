/* Which file a snapshot was read from, and whether it is there still. */
#include "core/ledger/db.h"

#include "core/base/again.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct tern_ledger_db_stamp stamp_of(const struct stat *st)
{
    return (struct tern_ledger_db_stamp){.inode = st->st_ino,
                                         .mtime_ns = st->st_mtim.tv_sec * 1000000000LL +
                                                     st->st_mtim.tv_nsec,
                                         .bytes = S_ISREG(st->st_mode) ? st->st_size : -1};
}

void tern_ledger_db_stamp_at(int dir, const char *path, struct tern_ledger_db_stamp *stamp)
{
    struct stat st;
    const bool there = TERN_AGAIN(fstatat(dir, path, &st, 0)) == 0;

    *stamp = there ? stamp_of(&st) : (struct tern_ledger_db_stamp){0};
}

void tern_ledger_db_stamp_of(int fd, struct tern_ledger_db_stamp *stamp)
{
    struct stat st;
    const bool there = TERN_AGAIN(fstat(fd, &st)) == 0;

    *stamp = there ? stamp_of(&st) : (struct tern_ledger_db_stamp){0};
}

void tern_ledger_db_stamp(const char *path, struct tern_ledger_db_stamp *stamp)
{
    tern_ledger_db_stamp_at(AT_FDCWD, path, stamp);
}

bool tern_ledger_db_stamp_same(const struct tern_ledger_db_stamp *a,
                               const struct tern_ledger_db_stamp *b)
{
    return a->inode == b->inode && a->mtime_ns == b->mtime_ns && a->bytes == b->bytes;
}
