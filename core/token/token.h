/* Tokenizers: text to ids and back, with the ids that the model was trained on.
 *
 *     struct tern_token *t = tern_token_load("models/Llama-2-7b-hf", err);
 *     struct tern_token_encoder *e = tern_token_encoder_new(t, err);
 *     tern_token_encode(e, text, len, &ids, &n, err);      (ids live until the next call)
 *     ...
 *     tern_token_encoder_free(e);
 *     tern_token_free(t);
 *
 * Three formats are read, each with the ids of the library that it belongs to:
 *
 *   SentencePiece BPE models   `tokenizer.model` of Llama 2, Mistral, TinyLlama   sentencepiece
 * 0.2.3 tiktoken files             `tokenizer.model` of Llama 3                       tiktoken 0.14
 *   `tokenizer.json`           BPE of bytes (GPT-2, Llama 3, SmolLM, Qwen 2) or   tokenizers 0.23
 *                              of characters (Llama 2, CodeLlama)
 *
 * The libraries differ among themselves: a file means what its own library makes of it.  What is
 * not understood (a unigram model, another regular expression) is refused by name.
 *
 * Algorithm: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units"
 * (ACL 2016), the best-scored pair first and the leftmost among equals.
 */
#ifndef TERN_TOKEN_TOKEN_H
#define TERN_TOKEN_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/str.h"

enum {
    TERN_TOKEN_NONE = -1,           /* the vocabulary has no such id */
    TERN_TOKEN_VOCAB_MAX = 1 << 22, /* ids; the largest published vocabularies have 2^18 */
    TERN_TOKEN_TEXT_MAX = 1 << 29,  /* bytes of one text: places in it stay below 2^31 */
};

/* A vocabulary.  Never changes after loading: any number of threads may use it. */
struct tern_token;

/* `path`: a file of one of the formats, or a folder (Hugging Face) that holds `tokenizer.model`.
 * If that is not there, `tokenizer.json` is read.  BOS and EOS are those of the configuration
 * beside the file, if it names some.  NULL with the file and the reason (TERN_USAGE) when it is
 * damaged or not supported. */
struct tern_token *tern_token_load(const char *path, struct tern_err *err);
void tern_token_free(struct tern_token *t); /* NULL is fine */

/* Ids are 0 .. n_vocab - 1. */
uint32_t tern_token_n_vocab(const struct tern_token *t);
/* The ids that begin a document, that end one, and that stand for text outside the vocabulary; or
 * TERN_TOKEN_NONE. */
int32_t tern_token_bos(const struct tern_token *t);
int32_t tern_token_eos(const struct tern_token *t);
int32_t tern_token_unk(const struct tern_token *t);
/* Does the library of the format put BOS before a text that a model is to go on with?  Not where
 * there is no BOS, or the post-processor of `tokenizer.json` puts none. */
bool tern_token_begins(const struct tern_token *t);
/* The file that was read; belongs to `t`. */
const char *tern_token_path(const struct tern_token *t);
/* "sentencepiece", "tiktoken" or "tokenizer.json". */
const char *tern_token_format(const struct tern_token *t);

/* Of a folder with `tokenizer.model` and `tokenizer.json`: does the latter give other ids for some
 * short texts, as files do that newer converters wrote?  NULL if not (or where it is not both, or
 * the latter cannot be read); else the first of those texts, a constant. */
const char *tern_token_disagree(const char *folder, const struct tern_token *t);

/* AutoTokenizer of transformers 5 reads some folders by the rules of a class that
 * tokenizer_config.json or config.json names, whatever the other files say.  Such are
 * LlamaTokenizer, CodeLlamaTokenizer, GPT2Tokenizer, GPTNeoXTokenizer and Qwen2Tokenizer.  NULL
 * where that gives a few texts the ids of `t`; else the first that has others, and *ret_class is
 * the class; both are constants. */
const char *tern_token_auto_differs(const char *folder, const struct tern_token *t,
                                    const char **ret_class);

/* The vocabulary's name: SHA-256 over every id's bytes, kind and place in the order of merges, and
 * over the normaliser's flags.  Of a vocabulary of bytes it is over the bytes of the ids that are
 * neither special nor added (token.c says exactly how).  It does not depend on the format: scores,
 * and a list of merges made from them, give the same order. */
void tern_token_hash(const struct tern_token *t, uint8_t hash[TERN_SHA256_BYTES]);

/* The vocabulary's name from a Hugging Face `tokenizer.json`: that of the SentencePiece model it
 * was converted from, or of the tiktoken file.  There are several, because converters order a few
 * merges differently: vocabularies are the same if any name is equal.  Returns 1.  0 when the file
 * has no such name (a kind of tokenizer that is not supported, ids with gaps); -1 when it cannot be
 * read.  `hash` is set on 1 only. */
enum { TERN_TOKEN_NAMES = 3 };
int tern_token_json_hash(const char *path, uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES],
                         struct tern_err *err);

/* Write a tiktoken vocabulary (tern_token_format) as a `tokenizer.json` to `path`, durable, whole
 * or not at all: the same ids and the same name (tern_token_json_hash).  Libraries that read it put
 * BOS before each text, as those of Llama 3 do. */
int tern_token_write_json(const struct tern_token *t, const char *path, struct tern_err *err);

/* The text of one id as it stands in the vocabulary ("▁the", "<0x0A>", "</s>"): not terminated,
 * *len bytes, belongs to `t`.  NULL when `id` is out of range. */
const char *tern_token_piece(const struct tern_token *t, uint32_t id, size_t *len);

/* One thread's working memory: a cache of words seen, the merge queue, the ids.  `t` must outlive
 * it. */
struct tern_token_encoder;
struct tern_token_encoder *tern_token_encoder_new(const struct tern_token *t, struct tern_err *err);
void tern_token_encoder_free(struct tern_token_encoder *e); /* NULL is fine */

/* Are special tokens (tokenizer.json's added ones, Llama 3's) found in text?  They are not unless
 * this is called with true: a user's text cannot end a document.  SentencePiece has none such. */
void tern_token_encoder_specials(struct tern_token_encoder *e, bool found);

/* The ids of `text` (any bytes, NUL too; a byte that is not UTF-8 counts as U+FFFD), without BOS
 * and EOS.  Control symbols are never recognised in text.  *ids has *n values and belongs to `e`
 * until its next call.  Fails above TERN_TOKEN_TEXT_MAX bytes and without memory. */
int tern_token_encode(struct tern_token_encoder *e, const char *text, size_t len,
                      const uint32_t **ids, size_t *n, struct tern_err *err);

/* Append the text of `ids` to `to`.  Control symbols vanish, and runs of byte pieces become UTF-8
 * (or U+FFFD).  The space put before the text when encoding is taken off.  Fails on an id that is
 * out of range, and when `to` overflows. */
int tern_token_decode(const struct tern_token *t, const uint32_t *ids, size_t n,
                      struct tern_buf *to, struct tern_err *err);
/* The same of two texts, the second from ids[second] on, which goes on with the first.  No space is
 * taken off there, and bytes of one make no character with bytes of the other.  to[*ret_at] is
 * where the second begins. */
int tern_token_decode_two(const struct tern_token *t, const uint32_t *ids, size_t n, size_t second,
                          struct tern_buf *to, size_t *ret_at, struct tern_err *err);

#endif
