/* Is a folder one and the same on all nodes, and do the calls that tern builds on hold there?  The
 * collector prepares a folder, every node works in it, the collector counts. */
#ifndef TERN_DOCTOR_PROBE_H
#define TERN_DOCTOR_PROBE_H

#include <stddef.h>

#include "core/base/err.h"
#include "core/doctor/doctor.h"

struct tern_doctor_probe {
    char *dir;        /* malloc'ed; NULL: none */
    char token[33];   /* what nodes must read there */
    int fcntl, flock; /* files that are locked while nodes work; -1: none */
};

/* A new folder below `ledger`, which is made if it is not there. */
int tern_doctor_probe_open(struct tern_doctor_probe *p, const char *ledger, struct tern_err *err);
/* On a node: facts "probe-...". */
void tern_doctor_probe_node(const char *dir,
                            void (*put)(void *arg, const char *key, const char *value), void *arg);
/* Looks for what the nodes that answered left there, adds facts, removes the folder. */
void tern_doctor_probe_close(struct tern_doctor_probe *p, struct tern_doctor_facts *facts);

#endif
