/* The parts of a flight report, for the files that make it and put it into words. */
#ifndef TERN_FLIGHT_REPORT_STATE_H
#define TERN_FLIGHT_REPORT_STATE_H

#include "core/base/str.h"
#include "core/flight/dump.h"

enum {
    REPORT_PARTS = 12, /* kinds of trouble in one communicator */
    REPORT_SLOW = 3,   /* ranks named as the slowest */
};

enum part_kind {
    PART_IN,       /* in the operation */
    PART_FINISHED, /* finished it */
    PART_BEHIND,   /* never called it; had finished the one before, or not */
    PART_FORGOT,   /* has a dump, which does not reach back to this communicator */
    PART_NO_DUMP,
};

struct part { /* members of a communicator that are in the same state */
    enum part_kind kind;
    uint64_t desc;
    enum tern_flight_state state; /* of it; BEHIND: of its last */
    int waits_for;
    double seconds;   /* in it so far, or until it failed: the longest of them */
    uint64_t left_op; /* BEHIND: its last, 0 for none; ended at left_ns, the last of them */
    int64_t left_ns;
    int *ranks; /* [n] ascending */
    int n;
};

struct place { /* a communicator in which not all is well */
    int id;
    uint32_t mark;
    uint64_t phase;
    bool cut;
    int *members, n;   /* ascending */
    uint64_t finished; /* the last operation that all members with a dump have finished */
    uint64_t op; /* the first that they called differently, else that some have not finished */
    struct part parts[REPORT_PARTS];
    int n_parts;
    bool differ; /* in what they called as `op` */
};

struct slow {
    int rank;
    uint64_t times; /* came last */
    double seconds; /* behind the last but one, in all */
};

/* How the chains of ranks, each waiting for the next, end. */
enum culprit_kind {
    CULPRIT_NONE,
    CULPRIT_DIFFERS, /* `place` says it */
    CULPRIT_NO_DUMP,
    CULPRIT_BEHIND, /* of others, in `place` */
    CULPRIT_ABSENT, /* not by itself: a node peer wrote its dump, so it was killed or hung */
    CULPRIT_CIRCLE,
    CULPRIT_MOMENTS, /* a circle within one communicator: its dumps are of different moments */
    CULPRIT_LOST, /* waits for a rank that has finished the operation, or its record names none */
};

struct tern_flight_report {
    char *dir;
    struct tern_buf bad; /* lines: files that are no dumps */
    int size;
    char (*nodes)[TERN_FLIGHT_NAME]; /* [size] */
    struct dump **dumps;             /* [size] or NULL */
    int n_dumps;
    struct place *places;
    int n_places;
    enum culprit_kind kind;
    int culprit;         /* world rank */
    int place;           /* index, or -1 */
    int n_waiting;       /* whose chain ends there */
    int *chain, n_chain; /* a longest of those chains, culprit last */
    struct slow slow[REPORT_SLOW];
    int n_slow;
    uint64_t compared; /* operations whose comers could be compared */
};

/* Sets kind, culprit, n_waiting and chain of a report that has its dumps and places. */
int tern_flight_culprit_find(struct tern_flight_report *a, struct tern_err *err);

#endif
