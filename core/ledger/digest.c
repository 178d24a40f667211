#include "core/ledger/digest.h"

#include "core/ledger/db.h"

static void digest_cell(struct tern_sha256 *h, sqlite3_stmt *st, int i)
{
    int type = sqlite3_column_type(st, i);
    int64_t integer = sqlite3_column_int64(st, i);
    double real = sqlite3_column_double(st, i);

    tern_sha256_add(h, &type, sizeof type);
    if (type == SQLITE_INTEGER) {
        tern_sha256_add(h, &integer, sizeof integer);
    } else if (type == SQLITE_FLOAT) {
        tern_sha256_add(h, &real, sizeof real);
    } else if (type != SQLITE_NULL) {
        const void *bytes = sqlite3_column_blob(st, i);
        int n = sqlite3_column_bytes(st, i);
        tern_sha256_add(h, &n, sizeof n);
        if (n)
            tern_sha256_add(h, bytes, (size_t)n);
    }
}

int tern_ledger_digest(sqlite3 *db, const char *const *queries, const char *bind,
                       uint8_t ret_digest[TERN_SHA256_BYTES], struct tern_err *err)
{
    struct tern_sha256 *h = tern_sha256_new();
    int step = SQLITE_DONE;

    for (const char *const *sql = queries; *sql && step == SQLITE_DONE; sql++) {
        sqlite3_stmt *st = tern_ledger_db_prepare(db, *sql, err);
        if (!st) {
            tern_sha256_end(h, NULL);
            return -1;
        }
        if (bind)
            sqlite3_bind_text(st, 1, bind, -1, SQLITE_STATIC);
        while ((step = sqlite3_step(st)) == SQLITE_ROW)
            for (int i = 0; i < sqlite3_column_count(st); i++)
                digest_cell(h, st, i);
        sqlite3_finalize(st);
    }
    tern_sha256_end(h, ret_digest);
    return step == SQLITE_DONE ? 0 : tern_ledger_db_fail(db, err, "ledger");
}
