/* A model that reads and continues rows of tokens one by one, with the keys and values of the
 * positions before kept in a cache.
 *
 *     struct tern_llama_decoder *d = tern_llama_decoder_new(m, rows, positions, err);
 *     tern_llama_decoder_read(d, row, ids, n, logits, err);             the prompt, piece by piece
 *     tern_llama_decoder_step(d, rows, ids, n, logits, err);            one token in each of n rows
 *     tern_llama_decoder_clear(d, row);                                 the row begins anew
 *     tern_llama_decoder_free(d);
 *
 * Everything is computed in tern_real, also with parameters in bf16: nothing is rounded on the way.
 * The bits of a row's logits depend on its tokens and its pieces alone: not on the other rows, nor
 * on threads.  All memory is allocated by tern_llama_decoder_new.  One thread at a time.
 */
#ifndef TERN_LLAMA_DECODER_H
#define TERN_LLAMA_DECODER_H

#include "core/llama/llama.h"

/* Tokens that are read at a time: products of so many rows run at full speed. */
enum { TERN_LLAMA_PIECE = 512 };

struct tern_llama_decoder;

/* `m` is a whole model without adapters and is borrowed; one made for a row of one position will
 * do.  `positions`: of a row, at most. NULL with `err`: no memory, with the bytes. */
struct tern_llama_decoder *tern_llama_decoder_new(struct tern_llama *m, int rows, int positions,
                                                  struct tern_err *err);
void tern_llama_decoder_free(struct tern_llama_decoder *d); /* NULL is fine */

/* The bytes that tern_llama_decoder_new would allocate for so many threads (0: this process's): the
 * cache, [layers,rows,K,positions,D] twice, and the rest. */
struct tern_llama_decoder_bytes {
    uint64_t cache, scratch;
};
struct tern_llama_decoder_bytes tern_llama_decoder_bytes(const struct tern_model_config *c,
                                                         int rows, int positions, int threads);

/* Positions that a row holds. */
int tern_llama_decoder_length(const struct tern_llama_decoder *d, int row);
void tern_llama_decoder_clear(struct tern_llama_decoder *d, int row);

/* Append n tokens to a row, 1 to TERN_LLAMA_PIECE; logits[V] that follow the last one, or NULL.
 * TERN_USAGE for an id outside the vocabulary, or where the row is full; the row is then as before.
 */
int tern_llama_decoder_read(struct tern_llama_decoder *d, int row, const int32_t *ids, int n,
                            tern_real *logits, struct tern_err *err);
/* Append ids[i] to the row rows[i], n different ones: logits[n,V] that follow. */
int tern_llama_decoder_step(struct tern_llama_decoder *d, const int *rows, const int32_t *ids,
                            int n, tern_real *logits, struct tern_err *err);

#endif
