#ifndef TERN_CMD_CLUSTER_LAYOUT_H
#define TERN_CMD_CLUSTER_LAYOUT_H

#include "core/base/opt.h"
#include "core/layout/layout.h"

/* `tern cluster check` and `tern cluster render`. */
extern const struct tern_cmd check_cmd, render_cmd;

/* The layout in `path`, its notes logged; NULL with `err` where it has errors. */
struct tern_layout *cluster_load_layout(const char *path, struct tern_err *err);

#endif
