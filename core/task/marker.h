/* The marker by which tern's plugin shows that it ran in this task.
 *
 * The environment of a job submitted with --tern says so on every node.  But only the plugin on the
 * node can hand over the option's values.  It sets
 *
 *     TERN_MARKER=<job>.<step>.<major>.<minor>        step: a number, or "batch"
 *
 * in each task, and the same as TERN_RECEIPT, which tern before 0.4 reads and its plugin sets alone
 * (both until 0.5).  A marker of another step was inherited, and says nothing about this node.  The
 * version is the plugin's (plugins/spank/plugin.h): another major number means that it hands over
 * other values, a lower minor number that newer options are lost. */
#ifndef TERN_TASK_MARKER_H
#define TERN_TASK_MARKER_H

#include <stdbool.h>

#include "core/base/err.h"

enum { TERN_TASK_MARKER_MAJOR = 1, TERN_TASK_MARKER_MINOR = 1 };

/* 0 when the job has no --tern, or when this is no task of a node (salloc's own shell).  0 also
 * when the marker is of this task.  -1 with TERN_TEMPFAIL when the plugin is missing on the node or
 * of another major version.  `report`: log when its minor version differs. */
int tern_task_check_marker(bool report, struct tern_err *err);

#endif
