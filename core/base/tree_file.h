/* One file of a tree: for copies of it. */
#ifndef TERN_BASE_TREE_FILE_H
#define TERN_BASE_TREE_FILE_H

#include <sys/stat.h>

#include "core/base/tree.h"

/* The regular file `path`, opened for reading; follows no link.  The descriptor, or -1. */
int tern_tree_open_file(const char *path, struct stat *st, struct tern_err *err);
/* The digest of the bytes of `fd`, which are also written to the new file `to` unless that is -1.
 */
int tern_tree_stream(int fd, const char *path, int to, const char *to_path,
                     char hex[TERN_SHA256_HEX], struct tern_err *err);

#endif
