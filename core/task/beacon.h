/* Does the supervisor's node still run?
 *
 * When the node of the batch script dies, no process is left to report it to Slurm.  With --no-kill
 * the job stays RUNNING, empty, until its limit.  So tern-task of the first rank of some other
 * nodes queries the supervisor by UDP every few seconds, and the supervisor answers.  A supervisor
 * that is busy or stopped does not answer either; `tern orphan` finds out what its silence means
 * (core/run/orphan.h).
 *
 * In the other direction every rank of a step sends a sign of life now and then, and its end.  When
 * slurmstepd has been killed, srun hears of neither (core/run/srun_hang.h).  Signs do not depend on
 * logs or storage.  Where no message gets through, nothing is concluded.
 *
 * By the same way a rank whose storage hangs reports at its end what is not in the ledger.
 */
#ifndef TERN_TASK_BEACON_H
#define TERN_TASK_BEACON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/datagram.h"
#include "core/base/err.h"
#include "core/ledger/lost.h"

/* Seconds without an answer, after which `tern orphan` checks the supervisor's node. */
enum { TERN_TASK_BEACON_SILENT_S = 5 };
/* Seconds that srun gets to end after the last of its ranks. */
enum { TERN_TASK_BEACON_OVER_S = 10 };

enum { TERN_TASK_BEACON_KEY = 16, TERN_TASK_BEACON_NODE = 256 };

/* A rank's report: the records that are not in the ledger. */
struct tern_task_beacon_loss {
    int64_t rank;
    struct tern_ledger_lost lost;
    char node[64]; /* cut where it is longer */
};

struct tern_task_beacon_rank {
    int64_t heard_ns; /* the last sign, on the boot clock; 0: none */
    bool ended;
};

/* The side of the supervisor. */
struct tern_task_beacon {
    struct tern_datagram socket;
    uint8_t key[TERN_TASK_BEACON_KEY];
    struct tern_task_beacon_loss *losses; /* one a rank, in the order in which they came */
    size_t n_losses;
    struct tern_task_beacon_rank *rank; /* [n] */
    size_t n;
    int failed;        /* wait(2)'s of the first rank that failed; 0: none did */
    int64_t judged_ns; /* when the signs were judged last */
};

/* Open the socket and set TERN_RUN_BEACON for the ranks to come; `node` is where this process runs,
 * NULL: the ranks report, and watch over nothing.  A failure is logged where they would watch, and
 * the run goes on without: then `socket.fd` is -1. */
void tern_task_beacon_open(struct tern_task_beacon *b, const char *node, int64_t spares);
/* From now on the signs of ranks 0 to n - 1 count.  Without memory none does. */
void tern_task_beacon_expect(struct tern_task_beacon *b, size_t n);
/* Answer the queries, note the signs and keep the reports that have come.  Call it when `socket.fd`
 * can be read. */
void tern_task_beacon_answer(struct tern_task_beacon *b);
void tern_task_beacon_close(struct tern_task_beacon *b);

/* What the signs of all ranks together say.  A rank is silent when six of its signs are missing;
 * one that was never heard lives.  A pause of this process is no silence. */
enum tern_task_beacon_life {
    TERN_TASK_BEACON_LIVES,  /* at least one rank */
    TERN_TASK_BEACON_ENDED,  /* all have, long enough ago for srun to have ended */
    TERN_TASK_BEACON_GONE,   /* some have, likewise, and all others are silent */
    TERN_TASK_BEACON_SILENT, /* all are */
};
enum tern_task_beacon_life tern_task_beacon_judge(struct tern_task_beacon *b, int64_t now_ns);
/* Nanoseconds between two signs of a rank: fewer in a large job, for the sake of the supervisor. */
int64_t tern_task_beacon_every_ns(int64_t ranks);

/* The side of a rank. */
struct tern_task_beacon_client {
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
bool tern_task_beacon_find(struct tern_task_beacon_client *a);
/* Send a query.  Does not wait. */
void tern_task_beacon_request(const struct tern_task_beacon_client *a);
/* Send a sign of `rank`; `ended`: with its wait(2)'s `status`. */
void tern_task_beacon_sign(const struct tern_task_beacon_client *a, int64_t rank, bool ended,
                           int status);
/* Read the answers that have come; true when there was one. */
bool tern_task_beacon_heard(struct tern_task_beacon_client *a);
/* Query for at most `ms`; true when it has answered. */
bool tern_task_beacon_await(struct tern_task_beacon_client *a, int ms);
/* Report `lost` of a rank on `node` to the supervisor of TERN_RUN_BEACON, for at most `ms` until it
 * has it. */
void tern_task_beacon_report(int64_t rank, const struct tern_ledger_lost *lost, const char *node,
                             int ms);
void tern_task_beacon_drop(struct tern_task_beacon_client *a);

#endif
