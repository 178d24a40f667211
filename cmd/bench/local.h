/* Ranks on this machine, as children. */
#ifndef TERN_CMD_BENCH_LOCAL_H
#define TERN_CMD_BENCH_LOCAL_H

#include "core/fabric/fabric.h"
#include "core/wire/rendezvous.h"

/* Fork `n` ranks, run `body` in each, and serve their rendezvous; the highest exit status of all.
 * `body` gets the options to open the fabric with.  -1: they could not be started or served, and
 * are gone. */
int bench_local(int n, int (*body)(const struct tern_fabric_options *o, struct tern_err *err),
                struct tern_err *err);

#endif
