/* Reading a file only where no user but root and the caller could have written it. */
#ifndef TERN_SITE_TRUST_H
#define TERN_SITE_TRUST_H

#include <stddef.h>

#include "core/base/err.h"

/* As tern_fs_read, but refused when another user owns the file, or a folder or link on its path as
 * written or resolved.  It is refused, too, when one of them is writable for group or others.  A
 * sticky folder (/tmp) passes, and so does a file that its owner's private group may write. */
int tern_site_read_trusted(const char *path, size_t max, char **data, size_t *len,
                           struct tern_err *err);

#endif
