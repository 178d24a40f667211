/* Files that are no text, known by their first bytes. */
#ifndef TERN_TEXT_KIND_H
#define TERN_TEXT_KIND_H

#include <stddef.h>

#include "core/base/err.h"

struct tern_text_kind {
    const char *what; /* "a Parquet file" */
    const char *then; /* what to do: one sentence */
};

/* NULL: none that is known.  `n`: at least 512 bytes, or all that the file has. */
const struct tern_text_kind *tern_text_kind_of(const char *bytes, size_t n);

/* An error where the first bytes of a file are of such a kind.  Also where so many are control
 * characters that they are another encoding or no text.  Colours of terminals, overstrikes and
 * separators of records are text. */
int tern_text_kind_check(const char *path, const char *bytes, size_t n, struct tern_err *err);

#endif
