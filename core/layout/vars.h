/* Variables of a layout: ${NAME} in its texts, and the file that has their values. */
#ifndef TERN_LAYOUT_VARS_H
#define TERN_LAYOUT_VARS_H

#include "core/base/yaml.h"
#include "core/layout/layout.h"

struct tern_layout_vars;

/* NULL when the file cannot be read or has no values.  See tern_layout_load_with. */
struct tern_layout_vars *tern_layout_vars_load(const char *path, struct tern_err *err);
void tern_layout_vars_free(struct tern_layout_vars *v);
/* Replace the variables of all texts at and below `n`; one without a value is noted and stays. */
void tern_layout_vars_fill(struct tern_layout *l, const struct tern_layout_vars *v,
                           struct tern_yaml_node *n);

#endif
