/* What lies in the place of a snapshot and cannot be used: kept, where it may be the only copy. */
#include "core/ledger/fold.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int tern_ledger_aside_put(const char *path, struct tern_err *err)
{
    struct stat st;
    const bool is_file = TERN_AGAIN(lstat(path, &st)) == 0 && S_ISREG(st.st_mode);
    int number = 0;

    for (int i = 1; i < 1000; i++) {
        char *to = i == 1 ? tern_strf("%s.bad", path) : tern_strf("%s.bad.%d", path, i);
        int rc = is_file ? TERN_AGAIN(link(path, to)) : -1;
        number = is_file ? errno : EPERM;
        if (rc < 0 && (number == EPERM || number == EOPNOTSUPP || number == ENOSYS)) {
            /* No file, or a file system without links. */
            const bool taken = tern_fs_exists(to);
            rc = taken ? -1 : tern_fs_rename(path, to, false);
            number = taken ? EEXIST : errno;
        }
        if (rc == 0)
            tern_warn("%s: kept as %s", path, tern_fs_basename(to));
        free(to);
        if (rc == 0 || number == ENOENT)
            return 0;
        if (number != EEXIST)
            break;
    }
    errno = number;
    return tern_err_sys(err, "%s: is damaged, and cannot be kept under another name", path);
}

const char *tern_ledger_aside_only_copy(const char *ledger_dir, const char *run_id,
                                        const char *path)
{
    const char *why = NULL;
    sqlite3 *db = NULL;
    bool gone = false;

    if (tern_ledger_db_open_any(path, &db, NULL) < 0)
        return "it cannot be opened: it may hold what the spools have lost";
    /* What it was made of. */
    if (!tern_ledger_db_sound_table(db, "ingest") ||
        tern_ledger_db_int(db, "SELECT count(*) FROM ingest", 0) == 0)
        why = "it does not tell what it was made of: it may hold what the spools have lost";
    else if (tern_ledger_fold_gone(ledger_dir, run_id, db, &gone, NULL) < 0 || gone)
        why = "it holds what the spools have lost";
    sqlite3_close(db);
    return why;
}
