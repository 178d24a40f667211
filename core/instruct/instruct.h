/* Records of instruct data (JSONL) as ids and a mask of targets, by way of a template.
 *
 *     struct tern_instruct *t = tern_instruct_open(&how, token, err);
 *     struct tern_instruct_encoder *e = tern_instruct_encoder_new(t, err);     (one a thread)
 *     tern_instruct_encode(e, line, len, &row, err);            (row lives until the next call)
 *     ...
 *     tern_instruct_encoder_free(e);
 *     tern_instruct_free(t);
 *
 * A record is an object with the fields that a template names (instruction, context, response;
 * prompt, completion), or a conversation under `messages` or `conversations`.
 *
 * Ids and masks are those of the trainer that most people use (SFTTrainer of trl 1.16 on
 * transformers 5).  Text between two special tokens is tokenised as a whole, prompt and answer
 * together.  The answer begins where its ids part from those of the prompt alone.  One thing
 * differs: special tokens come from the template only.  "<|eot_id|>" in a record is text.
 */
#ifndef TERN_INSTRUCT_INSTRUCT_H
#define TERN_INSTRUCT_INSTRUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"

struct tern_token;

/* Records of more tokens than are allowed. */
enum tern_instruct_longer {
    TERN_INSTRUCT_REFUSE, /* an error */
    TERN_INSTRUCT_CUT,    /* the first ones stay; the EOS behind them is no target */
    TERN_INSTRUCT_DROP,   /* they are left out */
};

struct tern_instruct_how {
    const char *template; /* a name (tern_instruct_names), or a file */
    bool all;             /* prompts are targets, too */
    bool bos;             /* documents begin with BOS whatever the template says */
    size_t max_tokens;    /* of a document, BOS and EOS included; 0: no limit */
    enum tern_instruct_longer longer;
};

/* A template beside a tokenizer. */
struct tern_instruct;
/* `how` is not kept, `token` is.  TERN_USAGE where the template is none, with its line, or where
 * the tokenizer lacks one of its special tokens. */
struct tern_instruct *tern_instruct_open(const struct tern_instruct_how *how,
                                         const struct tern_token *token, struct tern_err *err);
void tern_instruct_free(struct tern_instruct *t); /* NULL is fine */

/* The template's name (a file's is without its folder), and the SHA-256 of its text. */
const char *tern_instruct_name(const struct tern_instruct *t);
void tern_instruct_digest(const struct tern_instruct *t, uint8_t ret_digest[TERN_SHA256_BYTES]);
/* Do documents begin with BOS, by `how` or by the template? */
bool tern_instruct_bos(const struct tern_instruct *t);
/* Have documents masks?  With `all` only those have that may be cut. */
bool tern_instruct_masks(const struct tern_instruct *t);

/* Is the field `path` of a record read, as far as a table's columns tell: "response", "messages",
 * "messages[].role"? */
bool tern_instruct_reads(const struct tern_instruct *t, const char *path);

/* Of all threads' encoders so far. */
struct tern_instruct_counts {
    uint64_t records; /* whole, cut, dropped or without an answer */
    uint64_t cut, dropped;
    uint64_t unanswered; /* left out: the cut leaves nothing of the answer */
    uint64_t targets;    /* tokens, EOS among them */
};
struct tern_instruct_counts tern_instruct_counts(const struct tern_instruct *t);

/* One thread's working memory.  `t` must outlive it. */
struct tern_instruct_encoder;
struct tern_instruct_encoder *tern_instruct_encoder_new(struct tern_instruct *t,
                                                        struct tern_err *err);
void tern_instruct_encoder_free(struct tern_instruct_encoder *e); /* NULL is fine */

struct tern_instruct_row {
    const uint32_t *ids; /* without the document's BOS and EOS */
    const uint8_t *mask; /* [n], 1: a target.  NULL where tern_instruct_masks says so */
    size_t n;            /* 0: the record is left out, and counted */
    size_t text_bytes;   /* of text behind the ids, the template's included */
    bool eos;            /* the document's EOS is a target */
};
/* A record: one JSON object in UTF-8.  TERN_USAGE says what is wrong with it and what is wanted,
 * without file and line. */
int tern_instruct_encode(struct tern_instruct_encoder *e, const char *record, size_t len,
                         struct tern_instruct_row *ret_row, struct tern_err *err);

/* A record up to its last answer, which may be missing or empty: what a model continues.  Strings
 * are not terminated and live, as the ids, until the encoder's next call. */
struct tern_instruct_prompt {
    const uint32_t *ids; /* without the document's BOS */
    size_t n;
    const char *text; /* without special tokens */
    size_t text_len;
    const char *answer; /* the record's own; NULL: it has none */
    size_t answer_len;
};
int tern_instruct_prompt(struct tern_instruct_encoder *e, const char *record, size_t len,
                         struct tern_instruct_prompt *ret_prompt, struct tern_err *err);
/* The special token with which the template ends an answer; TERN_TOKEN_NONE (-1): by none. */
int32_t tern_instruct_end(const struct tern_instruct *t);

/* The templates that have names, NULL at the end, and their texts: files like a user's own. */
extern const char *const tern_instruct_names[];
const char *tern_instruct_text(const char *name); /* NULL: there is none of that name */

#endif
