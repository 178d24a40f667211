/* Inside the token room: text is cut into words, which are merged one by one.
 *
 * Each way is one published regular expression, which is written here by hand.  The words are those
 * that the expression finds one after the other (every text is covered).  \p{L}, \p{N} and \s are
 * those of Unicode 16.0 (unicode.h).  Oniguruma in tokenizers 0.23.3 and fancy-regex in tiktoken
 * 0.14 find the same words.
 *
 * Texts are valid UTF-8; no byte at or behind s + n is read.
 */
#ifndef TERN_TOKEN_SPLIT_H
#define TERN_TOKEN_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tern_split {
    TERN_SPLIT_NONE, /* a text is one word */
    /* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
    TERN_SPLIT_GPT2,
    /* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
     * \s*[\r\n]+|\s+(?!\S)|\s+ */
    TERN_SPLIT_LLAMA3,
    /* The same with \p{N} in place of \p{N}{1,3}. */
    TERN_SPLIT_QWEN2,
};

/* Bytes of the first word of `s`, n > 0 bytes of UTF-8. */
size_t tern_token_split_next(enum tern_split how, const char *s, size_t n);
/* The ends of the first words of `s`, n > 0 bytes and below 2^32.  They are at least one and at
 * most `max`, and may be fewer than there is room for; returns how many.  The text is done when the
 * last end is n. Several times as fast as one by one, if `max` is some hundreds. */
size_t tern_token_split_words(enum tern_split how, const char *s, size_t n, uint32_t *ret_ends,
                              size_t max);
/* Bytes of the first part of `s` (n > 0) when every digit is a part by itself.  The part is one
 * digit, or all up to the first digit.  Digits are \p{N} of Unicode 17.0, as Rust's
 * char::is_numeric in tokenizers 0.23.3 has them. */
size_t tern_token_split_digit(const char *s, size_t n);
/* The way of a regular expression as tokenizer.json spells it, in any of the published spellings;
 * TERN_SPLIT_NONE when it is not one of them. */
enum tern_split tern_token_split_named(const char *regex);
/* The expression of a way, a constant; NULL for TERN_SPLIT_NONE. */
const char *tern_token_split_expression(enum tern_split how);

#endif
