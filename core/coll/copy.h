/* Moving memory: loops for wide registers, copies that do not stay in the caches. */
#ifndef TERN_COLL_COPY_H
#define TERN_COLL_COPY_H

#include <stddef.h>

/* A function that moves memory, for wider registers too; which one runs is found out when the
 * program starts.  From the first caches they move twice as much in the same time. */
#if defined __x86_64__ && defined __GNUC__
#define TERN_COLL_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TERN_COLL_CLONES
#endif

/* The bytes of the largest cache of a core here; SIZE_MAX: not known. */
size_t tern_coll_copy_cache(void);

/* As memcpy, but the destination is not read into a cache first, which is a third of the memory
 * traffic of a copy. For data that the caches cannot hold: the next reader waits for memory. */
void tern_coll_copy_past(void *to, const void *from, size_t bytes);
/* After one or several of them, and before another process or thread learns of it: atomics alone do
 * not order these writes. */
void tern_coll_copy_past_end(void);

#endif
