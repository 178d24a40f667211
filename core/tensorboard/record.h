/* Records of event files, in memory. */
#ifndef TERN_TENSORBOARD_RECORD_H
#define TERN_TENSORBOARD_RECORD_H

#include <stdint.h>

#include "core/base/str.h"

/* Append one record.  `wall_ns`: since 1970. */
void tern_tensorboard_put_version(struct tern_buf *to, int64_t wall_ns);
/* A session that goes on with `step`: what other files of the folder have from it on is hidden. */
void tern_tensorboard_put_start(struct tern_buf *to, int64_t wall_ns, int64_t step);
/* `tag`: UTF-8 of at most TERN_TENSORBOARD_TAG_MAX bytes. */
enum { TERN_TENSORBOARD_TAG_MAX = 300 };
void tern_tensorboard_put_scalar(struct tern_buf *to, int64_t wall_ns, int64_t step,
                                 const char *tag, double value);

#endif
