/* Copies that do not stay in the caches. */
#ifndef TERN_FABRIC_COPY_H
#define TERN_FABRIC_COPY_H

#include <stddef.h>

/* The bytes of the largest cache of a core here; SIZE_MAX: nobody says. */
size_t tern_copy_cache(void);

/* As memcpy, but what is written goes to memory without being read into a cache first: a third of
 * what memory has to move otherwise.  For what the caches could not hold, as the next reader waits
 * for memory.  Others see it after tern_copy_past_end, whatever they are told by atomics before. */
void tern_copy_past(void *to, const void *from, size_t bytes);
void tern_copy_past_end(void);

#endif
