/* Inside the token room: Hugging Face's tokenizer.json while it is read.
 *
 * The vocabulary and the merges are most of such a file (a million strings in the largest); they
 * are read straight from its text.  The rest is a tree (jansson). */
#ifndef TERN_TOKEN_JSON_H
#define TERN_TOKEN_JSON_H

#include "core/base/json.h"
#include "core/token/vocab.h"

/* Several times the largest published file (Gemma's: 33 MB). */
enum { TERN_TOKEN_JSON_MAX = 64 << 20 };

/* A value inside the file's text: from its bracket to behind the closing one. */
struct tern_token_span {
    const char *at, *end; /* NULL: there is none */
    size_t n_commas;      /* outside strings */
};

struct tern_token_json {
    struct tern_token *t;
    char *text; /* the file, len bytes and a NUL */
    size_t len;
    struct tern_token_span vocab, merges; /* model.vocab, model.merges */
    json_t *tree;                         /* the file with {} and [] in their place */
    struct tern_token_names *names;
    uint32_t n_vocab; /* entries of model.vocab */
    uint32_t unk;     /* id of unk_token, or TERN_SYMBOL_NONE */
};

/* Read t->path: text, tree, vocab and merges are set.  Fails (TERN_USAGE) with path and line. */
int tern_token_json_open(struct tern_token_json *j, struct tern_err *err);
/* Frees what the struct owns. */
void tern_token_json_close(struct tern_token_json *j);
/* An error at a place of the file's text, with its line; -1. */
int tern_token_json_fail(const struct tern_token_json *j, const char *at, struct tern_err *err,
                         const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* After that: the settings of j->t, which may be unsupported; then its pieces, merges and added
 * tokens (json.c). */
int tern_token_json_settings(struct tern_token_json *j, struct tern_err *err);
int tern_token_json_pieces(struct tern_token_json *j, struct tern_err *err);

/* ---- scanning (json_scan.c) ---- */

/* A place in the text and room for a string with escapes. */
struct tern_token_cursor {
    const struct tern_token_json *json;
    const char *at;
    char *scratch; /* cap bytes */
    size_t cap;
    struct tern_err *err;
};

/* Skip white space, then `c`; false where another character stands. */
bool tern_token_json_take(struct tern_token_cursor *c, char ch);
/* A string, checked and without its escapes: *s lies in the file's text or in `scratch`. */
int tern_token_json_string(struct tern_token_cursor *c, const char **s, size_t *len);
/* A whole number from 0 to `max`. */
int tern_token_json_number(struct tern_token_cursor *c, uint32_t max, uint32_t *v);

/* ---- vocabulary and merges (json_vocab.c) ---- */

/* Fill in t->pieces from model.vocab; where t->byte_level, with the bytes that they stand for. */
int tern_token_json_vocab(struct tern_token_json *j, struct tern_err *err);
int tern_token_json_merges(struct tern_token_json *j, struct tern_err *err);
/* The id of a text as it stands in the file, or TERN_SYMBOL_NONE. */
uint32_t tern_token_json_id(const struct tern_token_json *j, const char *text, size_t len);
/* Is there a piece for each of the 256 bytes: <0xHH>, or a letter where t->byte_level? */
bool tern_token_json_all_bytes(const struct tern_token_json *j);
/* The bytes that a text in GPT-2's alphabet stands for, written to `to` (len bytes); 0 bytes when a
 * character is not in it.  `to` may be `s`. */
size_t tern_token_json_bytes(const char *s, size_t len, char *to);
/* The letter of GPT-2's alphabet that stands for a byte: below U+0144. */
uint32_t tern_token_json_letter(uint8_t byte);
void tern_token_names_free(struct tern_token_names *names); /* NULL is fine */

/* ---- steps (json_steps.c) ---- */

/* Each sets the fields of j->t that its member of the file is about.  In this order. */
int tern_token_json_normalizer(struct tern_token_json *j, struct tern_err *err);
int tern_token_json_pre_tokenizer(struct tern_token_json *j, struct tern_err *err);
int tern_token_json_decoder(struct tern_token_json *j, struct tern_err *err);

#endif
