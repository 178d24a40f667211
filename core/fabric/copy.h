/* Copies that do not stay in the caches. */
#ifndef TERN_FABRIC_COPY_H
#define TERN_FABRIC_COPY_H

#include <stddef.h>

/* The bytes of the largest cache of a core here; SIZE_MAX: nobody says. */
size_t tern_copy_cache(void);

/* As memcpy, but what is written goes to memory without being read into a cache first, which is a
 * third of what memory moves for a copy.  For what the caches cannot hold: the next reader waits
 * for memory. */
void tern_copy_past(void *to, const void *from, size_t bytes);
/* After one or several of them and before another process or thread is told of it: atomics alone do
 * not order these writes. */
void tern_copy_past_end(void);

#endif
