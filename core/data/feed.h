/* Files of text as tokens: what token sets are built from. */
#ifndef TERN_DATA_FEED_H
#define TERN_DATA_FEED_H

#include "core/data/data.h"
#include "core/text/text.h"

struct tern_token;

/* The tokens of a document. */
struct tern_data_feed_tokens {
    const uint32_t *ids; /* without BOS and EOS; until the next call */
    const uint8_t *mask; /* [n_ids], 1 where the token is a target; NULL: all are */
    size_t n_ids, text_bytes;
    bool cut; /* the EOS behind them is no target, where the mask counts */
};

/* Records (lines of JSONL, rows of Arrow files) that become tokens in another way than the text of
 * one field.  Each thread opens a state of its own. */
struct tern_data_feed_records {
    const void *arg; /* of open */
    void *(*open)(const void *arg, const struct tern_token *t, struct tern_err *err);
    /* One record, a JSON object on a line that is not blank, in UTF-8.  n_ids is 0 where the record
     * has no text. TERN_USAGE: the record is bad, and is left out where how.text.skip_bad says so;
     * the feed puts file and line before the words. */
    int (*encode)(void *state, const char *line, size_t len, struct tern_data_feed_tokens *ret,
                  struct tern_err *err);
    void (*close)(void *state);
    /* Is the field of an Arrow file read?  tern_text_how has it; NULL: all are. */
    bool (*reads)(const void *arg, const char *path);
};
/* How the files of such records are read; NULL: of texts. */
void tern_data_feed_read_records(const struct tern_data_feed_records *records,
                                 struct tern_text_how *ret_how);

enum { TERN_DATA_FEED_THREADS_MAX = 512 };
/* One for each CPU that this process may use. */
unsigned tern_data_feed_threads(void);

/* The documents of files as tokens, in order.  Threads change nothing of what comes out, errors
 * included: the first in the order of the files ends it.  What is in memory at a time is 256 KiB of
 * text for each of four pieces a thread, or a longer document. */
struct tern_data_feed_how {
    const struct tern_token *token;
    struct tern_text_how text;
    char *const *paths; /* "-" is standard input */
    size_t n_paths;
    /* Boundaries of documents (part.h): where reading begins in the first of the paths, and ends in
     * the last; 0: its end. */
    uint64_t from, to;
    unsigned threads; /* up to TERN_DATA_FEED_THREADS_MAX.  1: the caller's alone; more: they
                         tokenise, beside it */
    bool hash;        /* documents come with a hash of their text */
    bool specials;    /* special tokens are found in texts (tern_token_encoder_specials) */
    const struct tern_data_feed_records *records; /* NULL: documents are texts */
};

struct tern_data_feed_doc {
    struct tern_data_feed_tokens tokens;
    size_t path;         /* which of the paths */
    const uint8_t *hash; /* the first bytes of the text's SHA-256 (a record's: of its tokens and
                            mask), where how.hash; until the next call */
};

/* `how` is kept, and all that it points to.  One thread at a time. */
struct tern_data_feed;
struct tern_data_feed *tern_data_feed_open(const struct tern_data_feed_how *how,
                                           struct tern_err *err);
/* 1 and the next document, 0 at the end, -1. */
int tern_data_feed_next(struct tern_data_feed *f, struct tern_data_feed_doc *ret_doc,
                        struct tern_err *err);
/* Bytes of what is read, as stored, behind the document given last; *ret_all is 0 where a pipe is
 * among them. */
void tern_data_feed_progress(const struct tern_data_feed *f, uint64_t *ret_done, uint64_t *ret_all);
/* Of one file; whole once a document of a later one was given, or the end. */
struct tern_text_counts tern_data_feed_counts(const struct tern_data_feed *f, size_t path);
void tern_data_feed_close(struct tern_data_feed *f); /* NULL is fine */

#endif
