/* How many bytes of a file are not UTF-8, for the words of a refusal. */
#ifndef TERN_TEXT_INVALID_H
#define TERN_TEXT_INVALID_H

#include <stdbool.h>
#include <stdint.h>

struct tern_text_invalid_bytes {
    uint64_t bytes; /* each that begins no character */
    bool whole;     /* false: of the first GiB alone, which takes seconds */
};

/* Reads the file anew, through its compression.  -1 for what is no regular file (standard input,
 * an object at a URL), and where it cannot be read.  `stop` as in tern_text_how. */
int tern_text_invalid_count(const char *path, const int *stop,
                            struct tern_text_invalid_bytes *ret_invalid);

#endif
