/* Room on a file system, looked at before a large copy is begun. */
#ifndef TERN_RETAIN_ROOM_H
#define TERN_RETAIN_ROOM_H

#include <stdint.h>

#include "core/base/err.h"

/* Are `bytes` free where `to` is to be?  Folders above it may be missing.  0; -1 (ENOSPC:
 * TERN_TEMPFAIL).  A file system that cannot be asked, or does not know, has room. */
int tern_retain_room_check(const char *to, uint64_t bytes, struct tern_err *err);

#endif
