/* Compressed files: gzip by zlib, and, where tern was built with their libraries, Zstandard, bzip2
 * and xz.  A file is one member after the other, each whole by itself. */
#ifndef TERN_TEXT_CODEC_H
#define TERN_TEXT_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TERN_TEXT_CODEC_MAGIC = 10 }; /* bytes that tell any of them */

/* What a step takes from and gives: it moves the pointers and counts. */
struct tern_text_codec_io {
    const uint8_t *in;
    size_t n_in;
    uint8_t *out;
    size_t n_out;
};

enum tern_text_codec_result {
    TERN_TEXT_CODEC_MORE, /* input is used up, or there is no room */
    TERN_TEXT_CODEC_END,  /* of the member */
    TERN_TEXT_CODEC_DAMAGED,
    TERN_TEXT_CODEC_NO_MEMORY,
};

struct tern_text_codec {
    const char *name, *library;
    bool (*begins)(const uint8_t *in, size_t n);
    /* What follows is NULL where tern was built without the library.  NULL: no memory. */
    void *(*open)(void);
    enum tern_text_codec_result (*step)(void *state, struct tern_text_codec_io *io,
                                        const char **ret_why);
    bool (*again)(void *state); /* the next member begins; false: no memory */
    void (*close)(void *state);
};

/* By the first bytes of a file or of a member; NULL where they are of none. */
const struct tern_text_codec *tern_text_codec_of(const uint8_t *in, size_t n);

#endif
