/* Generated tokens as text, while they come.
 *
 * The text is that of tern_token_decode over all tokens (of _two, behind a prompt).  It is given
 * out in pieces of whole UTF-8 characters, as soon as no later token can change them.
 */
#ifndef TERN_INFER_STREAM_H
#define TERN_INFER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/token/token.h"

struct tern_infer_stream;

/* `before`: the id before the text, whose own text is left out.  A space that begins the first word
 * stays then, and its bytes make no character with the text's.  -1: the text stands alone. `stops`
 * (NULL where n_stops is 0, else kept): texts that end it. */
struct tern_infer_stream *tern_infer_stream_new(const struct tern_token *t, int32_t before,
                                                const char *const *stops, size_t n_stops,
                                                struct tern_err *err);
void tern_infer_stream_free(struct tern_infer_stream *s); /* NULL is fine */

/* The next token: 0, or 1 where a text of `stops` has come; the stream's text ends before it.
 * *ret_text[*ret_len] are the characters that are certain now and were not given out yet (perhaps
 * none); they belong to the stream until the next call. */
int tern_infer_stream_add(struct tern_infer_stream *s, uint32_t id, const char **ret_text,
                          size_t *ret_len, struct tern_err *err);
/* After the last token: the rest. */
void tern_infer_stream_end(struct tern_infer_stream *s, const char **ret_text, size_t *ret_len);
/* All of the text so far, given out or not. */
const char *tern_infer_stream_text(const struct tern_infer_stream *s, size_t *ret_len);

#endif
