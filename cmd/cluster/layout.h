#ifndef TERN_CMD_CLUSTER_LAYOUT_H
#define TERN_CMD_CLUSTER_LAYOUT_H

#include "core/base/opt.h"
#include "core/layout/layout.h"

/* `tern cluster check`, `lint` (the same) and `render`. */
extern const struct tern_cmd check_cmd, lint_cmd, render_cmd;

/* The layout in `path`, its findings printed on stderr; NULL with `err` where it has errors.
 * `vars`: the file of its variables, or NULL. */
struct tern_layout *cluster_load_layout(const char *path, const char *vars, struct tern_err *err);

/* The same, but variables may be without a value: they stay in what is rendered. */
struct tern_layout *cluster_load_draft(const char *path, const char *vars, struct tern_err *err);

/* The help of --vars. */
extern const char cluster_vars_help[];

/* Print each finding as "file:line: severity: id: text" on stderr; `variables`: those without a
 * value among them. */
void cluster_print_notes(const struct tern_layout *l, bool variables);
/* -1 with their number in `err` where there are errors. */
int cluster_count_errors(const struct tern_layout *l, struct tern_err *err);

#endif
