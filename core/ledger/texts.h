/* Memory of rows handed out: an array that grows, and the texts that its members point to. */
#ifndef TERN_LEDGER_TEXTS_H
#define TERN_LEDGER_TEXTS_H

#include "core/ledger/ledger.h"

/* A copy of `s` (NULL stays NULL) that lives until *texts is freed; aborts without memory, as
 * tern_strdup. */
const char *tern_ledger_text(void **texts, const char *s);
void tern_ledger_texts_free(void **texts);

/* One more member of `size` bytes, zeroed; NULL over `max` members or without memory. */
void *tern_ledger_rows_add(struct tern_ledger_rows *rows, size_t size, size_t max,
                           struct tern_err *err);

#endif
