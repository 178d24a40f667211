/* Inside the token room: classes of 64 bytes at a time, as bit masks.
 *
 * Pieces of published vocabularies join letters with letters, punctuation with punctuation, and
 * either with the spaces before them.  So the places where no piece crosses are found for many
 * bytes at once.
 */
#ifndef TERN_TOKEN_CLASSES_H
#define TERN_TOKEN_CLASSES_H

#include <stddef.h>
#include <stdint.h>

enum tern_class {
    TERN_CLASS_LETTER, /* ASCII's */
    TERN_CLASS_SPACE,  /* ' ' alone */
    TERN_CLASS_DIGIT,
    TERN_CLASS_OTHER,  /* the rest of ASCII */
    TERN_CLASS_BEYOND, /* a byte of another character */
    TERN_CLASSES,
};

/* Bit i of mask[c]: s[i] is of class c, for i < n <= 64. */
void tern_token_classes(const char *s, size_t n, uint64_t mask[TERN_CLASSES]);
/* The class of one byte. */
enum tern_class tern_token_class(uint8_t b);

#endif
