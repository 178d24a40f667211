/* The XML that S3 answers with: elements and text.  No document types, so no entities of a
 * server's own; depth, names and sizes have limits.  Attributes are read over. */
#ifndef TERN_STORE_XML_H
#define TERN_STORE_XML_H

#include <stddef.h>

#include "core/base/err.h"

/* Calls `each` at the end of every element with its path ("ListBucketResult/Contents/Key") and the
 * text that lies directly in it.  A NUL ends that text (a text with a NUL is an error).  `each`
 * returns 0 to go on; anything else ends the reading and is returned.  `what` is for messages.
 * `text` [len + 1] ends with a NUL, and is changed. */
int tern_store_xml(char *text, size_t len, const char *what,
                   int (*each)(void *ctx, const char *path, const char *value), void *ctx,
                   struct tern_err *err);

/* A path below the outermost element, which other servers than Amazon's name otherwise; "" for that
 * element itself. */
const char *tern_store_xml_below(const char *path);

#endif
