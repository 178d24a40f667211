/* The plugin's word that it ran in this task.
 *
 * A job that was submitted with --tern tells so in its environment, on every node; but only the
 * plugin on the node can hand over what the option brings.  It writes
 *
 *     TERN_RECEIPT=<job>.<step>.<major>.<minor>        step: a number, or "batch"
 *
 * into each task.  One of another step was inherited, and says nothing about this node.  The
 * version is the plugin's (plugins/spank/plugin.h): another major number means that it hands over
 * something else; a lower minor one that newer options are lost on the way. */
#ifndef TERN_TASK_MARKER_H
#define TERN_TASK_MARKER_H

#include <stdbool.h>

#include "core/base/err.h"

enum { TERN_TASK_MARKER_MAJOR = 1, TERN_TASK_MARKER_MINOR = 1 };

/* 0 when the job carries no --tern, when this is no task of a node (salloc's own shell), and when
 * the marker is this task's; -1 with TERN_TEMPFAIL when the plugin is missing on the node or of
 * another major version.  `tell`: log when its minor version is another. */
int tern_task_check_marker(bool tell, struct tern_err *err);

#endif
