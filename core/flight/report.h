/* The flight report: which rank was missing where, by the dumps of a run's ranks (flight.h). */
#ifndef TERN_FLIGHT_REPORT_H
#define TERN_FLIGHT_REPORT_H

#include <jansson.h>

#include "core/base/err.h"
#include "core/base/str.h"

struct tern_flight_report;

/* Reads every fabric-rank-*.tfr in `dir`.  Files that are none are named in the text; NULL with
 * `err` when there is no good one. */
struct tern_flight_report *tern_flight_report_read(const char *dir, struct tern_err *err);
void tern_flight_report_free(struct tern_flight_report *a);

/* Lines for people; times in the local zone. */
void tern_flight_report_text(const struct tern_flight_report *a, struct tern_buf *to);
/* The same as an object; a new reference. */
json_t *tern_flight_report_json(const struct tern_flight_report *a);

#endif
