/* Does the supervisor's node still run?
 *
 * Where the node of the batch script dies, no one is left who would tell Slurm; with --no-kill the
 * job stays RUNNING with nothing in it until its limit.  So the supervisor answers, by UDP, whoever
 * of its ranks' nodes asks: tern-task of the first rank of each other node, every few seconds.  A
 * supervisor that is busy or was stopped does not answer either; what its silence means
 * `tern orphan` finds out (orphan.h).
 */
#ifndef TERN_TASK_BEACON_H
#define TERN_TASK_BEACON_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/datagram.h"
#include "core/base/err.h"

/* Seconds without an answer of the supervisor's, after which its node is looked at (orphan.h). */
enum { TERN_TASK_BEACON_SILENT_S = 5 };

enum { TERN_TASK_BEACON_KEY = 16, TERN_TASK_BEACON_NODE = 256 };

/* The supervisor's. */
struct tern_task_beacon {
    struct tern_datagram socket;
    uint8_t key[TERN_TASK_BEACON_KEY];
};

/* Tells the ranks to come by TERN_RUN_BEACON; `node` is where this process runs.  What fails is
 * told in the log, and the run does without: then `socket.fd` is -1. */
void tern_task_beacon_open(struct tern_task_beacon *b, const char *node, int64_t spares);
/* Answers what has come.  To be called when `socket.fd` can be read. */
void tern_task_beacon_answer(struct tern_task_beacon *b);
void tern_task_beacon_close(struct tern_task_beacon *b);

/* A rank's. */
struct tern_task_beacon_asker {
    struct tern_datagram socket;
    struct tern_datagram_place to;
    uint8_t key[TERN_TASK_BEACON_KEY];
    char node[TERN_TASK_BEACON_NODE]; /* the supervisor's */
    int64_t spares;                   /* launch.spares: the job outlives a node */
    int64_t heard_ns;                 /* when it last answered, on the boot clock */
};

/* Which of the nodes that ask `node` (SLURM_NODEID) is, for they act one after the other; -1: none
 * of them.  The first four do, and those at powers of two: enough of them outlive a rack, and they
 * are few enough for the controller. */
int tern_task_beacon_turn(int64_t node);

/* By TERN_RUN_BEACON.  False where there is none, or it cannot be asked: `socket.fd` is -1 then. */
bool tern_task_beacon_find(struct tern_task_beacon_asker *a);
/* Does not wait. */
void tern_task_beacon_ask(const struct tern_task_beacon_asker *a);
/* Reads the answers that have come; true when there was one. */
bool tern_task_beacon_heard(struct tern_task_beacon_asker *a);
/* Asks for at most `ms`; true when it has answered. */
bool tern_task_beacon_await(struct tern_task_beacon_asker *a, int ms);
void tern_task_beacon_drop(struct tern_task_beacon_asker *a);

#endif
