/* Files that are no text, told by their first bytes. */
#ifndef TERN_TEXT_KIND_H
#define TERN_TEXT_KIND_H

#include <stddef.h>

struct tern_text_kind {
    const char *what; /* "a Parquet file" */
    const char *then; /* what to do: one sentence */
};

/* NULL: none that is known.  `n`: at least 512 bytes, or all that the file has. */
const struct tern_text_kind *tern_text_kind_of(const char *bytes, size_t n);

#endif
