/* Does the supervisor's node still run?
 *
 * When the node of the batch script dies, no process is left to report it to Slurm; with --no-kill
 * the job stays RUNNING, empty, until its limit.  So tern-task of the first rank of some other
 * nodes queries the supervisor by UDP every few seconds, and the supervisor answers.  A supervisor
 * that is busy or stopped does not answer either; `tern orphan` finds out what its silence means
 * (core/run/orphan.h).
 *
 * By the same way a rank whose storage hangs reports at its end what is not in the ledger.
 */
#ifndef TERN_TASK_BEACON_H
#define TERN_TASK_BEACON_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/datagram.h"
#include "core/base/err.h"
#include "core/ledger/lost.h"

/* Seconds without an answer, after which `tern orphan` checks the supervisor's node. */
enum { TERN_TASK_BEACON_SILENT_S = 5 };

enum { TERN_TASK_BEACON_KEY = 16, TERN_TASK_BEACON_NODE = 256 };

/* A rank's report: the records that are not in the ledger. */
struct tern_task_beacon_loss {
    int64_t rank;
    struct tern_ledger_lost lost;
    char node[64]; /* cut where it is longer */
};

/* The side of the supervisor. */
struct tern_task_beacon {
    struct tern_datagram socket;
    uint8_t key[TERN_TASK_BEACON_KEY];
    struct tern_task_beacon_loss *losses; /* one a rank, in the order in which they came */
    size_t n_losses;
};

/* Open the socket and set TERN_RUN_BEACON for the ranks to come; `node` is where this process runs,
 * NULL: the ranks report, and watch over nothing.  A failure is logged where they would watch, and
 * the run goes on without: then `socket.fd` is -1. */
void tern_task_beacon_open(struct tern_task_beacon *b, const char *node, int64_t spares);
/* Answer the queries and keep the reports that have come.  Call it when `socket.fd` can be read. */
void tern_task_beacon_answer(struct tern_task_beacon *b);
void tern_task_beacon_close(struct tern_task_beacon *b);

/* The side of a rank. */
struct tern_task_beacon_asker {
    struct tern_datagram socket;
    struct tern_datagram_place to;
    uint8_t key[TERN_TASK_BEACON_KEY];
    char node[TERN_TASK_BEACON_NODE]; /* of the supervisor; "": nothing is watched */
    int64_t spares;                   /* launch.spares: the job outlives a node */
    int64_t heard_ns;                 /* when it last answered, on the boot clock */
};

/* The turn of `node` (SLURM_NODEID) among the nodes that query the beacon, which act one after the
 * other; -1: it does not query.  The first four nodes do, and those at powers of two: enough of
 * them survive a rack, and they are few enough for the controller. */
int tern_task_beacon_turn(int64_t node);

/* Open the beacon of TERN_RUN_BEACON.  False when there is none or it cannot be queried:
 * `socket.fd` is -1 then. */
bool tern_task_beacon_find(struct tern_task_beacon_asker *a);
/* Send a query.  Does not wait. */
void tern_task_beacon_ask(const struct tern_task_beacon_asker *a);
/* Read the answers that have come; true when there was one. */
bool tern_task_beacon_heard(struct tern_task_beacon_asker *a);
/* Query for at most `ms`; true when it has answered. */
bool tern_task_beacon_await(struct tern_task_beacon_asker *a, int ms);
/* Report `lost` of a rank on `node` to the supervisor of TERN_RUN_BEACON, for at most `ms` until it
 * has it. */
void tern_task_beacon_report(int64_t rank, const struct tern_ledger_lost *lost, const char *node,
                             int ms);
void tern_task_beacon_drop(struct tern_task_beacon_asker *a);

#endif
