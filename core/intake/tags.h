/* Names of metrics for the tags of event files.
 *
 * A tag is the metric's name.  Files of several folders may have it at once (Keras' train/ and
 * validation/, the folder that torch's add_scalars makes for each value).  Then TensorBoard shows a
 * curve for each folder, and the folder's name stands before the tag: "validation/epoch_loss".  The
 * folder that had it first keeps the tag alone.  A process that goes on in a folder of its own
 * (version_1 after a restart) goes on with the metric.
 */
#ifndef TERN_INTAKE_TAGS_H
#define TERN_INTAKE_TAGS_H

#include <stddef.h>

#include "core/intake/writers.h"

struct tern_intake_tags;

struct tern_intake_tags *tern_intake_tags_open(void);
/* The metric for `tag` of a file, into to[size].  `folder`: the file's, below the folder that is
 * read ("" for that one); `order`: its place among the files, those made later behind. */
void tern_intake_tags_name(struct tern_intake_tags *t, const char *folder,
                           const struct tern_intake_writer *w, size_t order, const char *tag,
                           char *to, size_t size);
void tern_intake_tags_close(struct tern_intake_tags *t);

#endif
