/* The rows of an Arrow file, as `datasets` saves them, in pieces. A text is one cell of each, or
 * all that is read of it. */
#ifndef TERN_TEXT_TABLE_H
#define TERN_TEXT_TABLE_H

#include "core/text/source.h"

/* Is it such a file, by its first bytes? */
bool tern_text_table_is(const char *bytes, size_t n);

struct tern_text_table;
/* The text is how->field: a column, or a field of a struct in one ("content.text"). Where
 * how->records says so, it is the whole row, as a JSON object. */
struct tern_text_table *tern_text_table_open(const char *path, const struct tern_text_how *how,
                                             struct tern_err *err);
/* The next rows into `c`, `want` bytes of them or one: 1; 0 at the end; -1. */
int tern_text_table_cut(struct tern_text_table *t, struct tern_text_chunk *c, size_t want,
                        struct tern_err *err);
/* Bytes of the file that were gone through. */
uint64_t tern_text_table_done(const struct tern_text_table *t);
void tern_text_table_close(struct tern_text_table *t); /* NULL is fine */

/* The next row of a piece: false at its end.  *ret_text is NULL for a cell without a value. */
bool tern_text_table_take(struct tern_text_chunk *c, const char **ret_text, size_t *ret_len);

#endif
