/* Scripts of peers, which lie in tern's source: tests/bench. */
#ifndef TERN_CMD_BENCH_SCRIPT_H
#define TERN_CMD_BENCH_SCRIPT_H

#include "core/base/err.h"

/* malloc'ed: `given`, or without it the script `name` of the tree that built this program.  NULL
 * (TERN_USAGE) when it cannot be read; `peer` and `option` are for the message. */
char *bench_script_find(const char *given, const char *name, const char *peer, const char *option,
                        struct tern_err *err);

#endif
