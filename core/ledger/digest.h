/* What a database says, as one number. */
#ifndef TERN_LEDGER_DIGEST_H
#define TERN_LEDGER_DIGEST_H

#include <sqlite3.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"

/* SHA-256 of the cells of all rows of `queries` (ends in NULL), with their types.  `bind`: what ?1
 * is in each of them, or NULL. */
int tern_ledger_digest(sqlite3 *db, const char *const *queries, const char *bind,
                       uint8_t ret_digest[TERN_SHA256_BYTES], struct tern_err *err);

#endif
