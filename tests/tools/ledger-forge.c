/* ledger-forge RUN.DB SQL: changes a run's snapshot as a process could that publishes as a fold
 * does, with a right seal.  For tests of what readers do with values that no spool of theirs can
 * have. */
#include "core/base/err.h"
#include "core/base/fs.h"
#include "core/ledger/db.h"
#include "core/ledger/pages.h"
#include "core/ledger/schema.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct tern_ledger_db_stamp stamp;
    struct tern_err err = {0};
    sqlite3 *db = NULL;

    if (argc != 3) {
        fputs("usage: ledger-forge RUN.DB SQL\n", stderr);
        return 2;
    }
    char *of = tern_fs_dirname(argv[1]);
    int rc = tern_ledger_db_load(argv[1], tern_schema_run, &db, &stamp, &err);

    if (rc == 0)
        rc = tern_ledger_db_exec(db, argv[2], &err);
    if (rc == 0)
        rc = tern_ledger_db_publish(db, argv[1], of, 0755, tern_ledger_pages_finish, &stamp, &err);
    if (rc != 0)
        fprintf(stderr, "ledger-forge: %s: %s\n", argv[1], err.text);
    sqlite3_close(db);
    free(of);
    return rc == 0 ? 0 : 1;
}
