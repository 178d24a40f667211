/* Processes in a running cluster, started from outside. */
#ifndef TERN_VCLUSTER_ENTER_H
#define TERN_VCLUSTER_ENTER_H

#include "core/vcluster/plan.h"

/* A function running in the head; `fd` can be read when it is done. */
struct tern_vcluster_enter_call {
    pid_t pid;
    int fd;
    size_t size;
};

/* Start fn(question, out) in the head of the cluster in `dir`; `out` has `size` bytes there,
 * zeroed.  `question` is a copy from the start. */
int tern_vcluster_enter_call_start(struct tern_vcluster_enter_call *c, const char *dir,
                                   int (*fn)(const void *question, void *out, struct tern_err *err),
                                   const void *question, size_t size, struct tern_err *err);
/* Wait for its end and copy its `out`, or return its error. */
int tern_vcluster_enter_call_end(struct tern_vcluster_enter_call *c, void *out,
                                 struct tern_err *err);
void tern_vcluster_enter_call_abort(struct tern_vcluster_enter_call *c);

#endif
