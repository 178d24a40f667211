/* checkpoint.every: auto.  Steps between checkpoints, from the cost of a save here and how often
 * nodes fail: sqrt(2 x cost x M).  M is the mean time between failures of the run's nodes (Young,
 * "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974).
 *
 * The cost is the time for which training stands still.  A save that is written in the background
 * costs little; the next one begins when it has ended, at the earliest.
 *
 * The first checkpoint of an attempt comes after TERN_TRAIN_INTERVAL_FIRST steps, to measure.
 */
#ifndef TERN_TRAIN_INTERVAL_H
#define TERN_TRAIN_INTERVAL_H

#include <stddef.h>
#include <stdint.h>

enum { TERN_TRAIN_INTERVAL_FIRST = 10, TERN_TRAIN_INTERVAL_TEXT = 200 };

struct tern_train_interval {
    int64_t every;      /* steps; 0: not begun */
    uint64_t last_step; /* of the last save that was due */
    uint64_t timed_step;
    int64_t timed_ns; /* boot clock at the end of that step */
};

struct tern_train_interval_cost {
    double stall_s, write_s; /* of a save: training stood still; it was written */
    double step_s;           /* of a step without saves */
    double mtbf_h;           /* of one node */
    int nodes;
};

/* Seconds between checkpoints. */
double tern_train_interval_seconds(const struct tern_train_interval_cost *c);

/* The steps between checkpoints from now on: `every`, unless the best number is a fifth more or
 * less.  `text`: why, for log and ledger, where it is another one; else "". */
int64_t tern_train_interval_choose(int64_t every, const struct tern_train_interval_cost *c,
                                   char text[TERN_TRAIN_INTERVAL_TEXT]);

#endif
