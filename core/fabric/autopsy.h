/* What the dumps of a run's ranks (recorder.h) say together: who was missing where. */
#ifndef TERN_FABRIC_AUTOPSY_H
#define TERN_FABRIC_AUTOPSY_H

#include <jansson.h>

#include "core/base/err.h"
#include "core/base/str.h"

struct tern_autopsy;

/* Reads every fabric-rank-*.tfr in `dir`.  Files that are none are named in the text; NULL with
 * `err` when there is no good one. */
struct tern_autopsy *tern_fabric_autopsy(const char *dir, struct tern_err *err);
void tern_fabric_autopsy_free(struct tern_autopsy *a);

/* Lines for people; times in the local zone. */
void tern_fabric_autopsy_text(const struct tern_autopsy *a, struct tern_buf *to);
/* The same as an object; a new reference. */
json_t *tern_fabric_autopsy_json(const struct tern_autopsy *a);

#endif
