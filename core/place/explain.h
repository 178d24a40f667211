/* Where each rank runs, as `tern run --explain` prints it. */
#ifndef TERN_PLACE_EXPLAIN_H
#define TERN_PLACE_EXPLAIN_H

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/layout/layout.h"
#include "core/place/order.h"

struct tern_place_explain {
    const struct tern_recipe *recipe;
    const struct tern_place *place;
    const struct tern_place_order *order;
    const char *about;                       /* where the nodes come from: "job 12" */
    const struct tern_layout_instance *type; /* of the nodes; NULL when not known */
    int threads;                             /* CPUs of one core */
    const char *reserve;                     /* nodes kept in reserve: "a[3-4]"; "" for none */
    char *const *command;                    /* what would be run, NULL-ended */
    int columns;                             /* of the terminal; at least 60 */
};

/* A table of the nodes (rows that differ in their numbers alone are one), the groups and the
 * switches between their members. Then the ranks of a node, and the command line. */
void tern_place_explain_text(const struct tern_place_explain *e, struct tern_buf *to);
/* The same as JSON, no rows folded.  A new reference. */
json_t *tern_place_explain_json(const struct tern_place_explain *e);

#endif
