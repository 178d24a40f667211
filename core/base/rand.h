/* Random numbers as a pure function of (seed, stream, counter): they depend neither on the order of
 * calls nor on the caller.  SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014) in three
 * rounds. */
#ifndef TERN_BASE_RAND_H
#define TERN_BASE_RAND_H

#include <stdint.h>

uint64_t tern_rand_u64(uint64_t seed, uint64_t stream, uint64_t i);
/* In [0, 1), 53 bits. */
double tern_rand_unit(uint64_t seed, uint64_t stream, uint64_t i);
/* Standard normal (Box and Muller; uses counters 2i and 2i+1). */
double tern_rand_normal(uint64_t seed, uint64_t stream, uint64_t i);
/* In [0, n), unbiased enough for n < 2^32: the multiply-shift's bias is below n / 2^64. */
uint64_t tern_rand_below(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n);

/* A keyed permutation of [0, n): the place where element `i` goes.  A four-round Feistel network on
 * the next even power of two, walked until it falls inside (n <= 2^62). */
uint64_t tern_rand_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n);
/* Its inverse: the element that goes to `place`. */
uint64_t tern_rand_permute_back(uint64_t seed, uint64_t stream, uint64_t place, uint64_t n);

/* From the kernel, for identities; aborts when it cannot. */
void tern_rand_system(void *to, unsigned len);

#endif
