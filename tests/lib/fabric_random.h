/* Random operations on random groups, beside a plain reference (fabric-ranks random). */
#ifndef TESTS_LIB_FABRIC_RANDOM_H
#define TESTS_LIB_FABRIC_RANDOM_H

#include "core/fabric/fabric.h"

/* Every rank calls it with the same numbers.  0: all as the reference says, and the same bits on
 * every rank; 1: not, as said on stderr.  With TEST_FABRIC_ORDER=any float sums may be in any
 * order. */
int fabric_random(struct tern_fabric *f, uint64_t seed, int operations);

#endif
