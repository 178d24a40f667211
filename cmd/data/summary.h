/* What became of the documents of a build: printed behind it, and kept in the set's notes. */
#ifndef TERN_CMD_DATA_SUMMARY_H
#define TERN_CMD_DATA_SUMMARY_H

#include "cmd/data/build.h"

/* {"documents", "tokens", "text_bytes", "duplicates", "too_short", "empty", "not_utf8",
 * "bad_lines", "replaced_bytes", "byte_order_marks", "bad": [{"path", "lines", "first": [...]}]};
 * the last two are missing where there is none.  A new reference; NULL without memory. */
json_t *data_summary(const struct data_sums *s);
/* "left out: 12 duplicates, 3 too short; no document was cut"; what is missing counts 0. `records`:
 * of a template, of which some may be cut; nothing where all were taken. */
void data_summary_words(const json_t *summary, bool records, struct tern_buf *to);

#endif
