/* Files of text as tokens: what token sets are built from. */
#ifndef TERN_DATA_FEED_H
#define TERN_DATA_FEED_H

#include "core/text/text.h"

struct tern_token;

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
    unsigned threads; /* up to TERN_DATA_FEED_THREADS_MAX.  1: the caller's alone; more: they
                         tokenise, beside it */
};

struct tern_data_feed_doc {
    const uint32_t *ids; /* without BOS and EOS; until the next call */
    size_t n_ids, text_bytes;
    size_t path; /* which of the paths */
};

/* `how` is kept, and all that it points to.  One thread at a time. */
struct tern_data_feed;
struct tern_data_feed *tern_data_feed_open(const struct tern_data_feed_how *how,
                                           struct tern_err *err);
/* 1 and the next document, 0 at the end, -1. */
int tern_data_feed_next(struct tern_data_feed *f, struct tern_data_feed_doc *ret_doc,
                        struct tern_err *err);
/* Bytes of all files, as stored, behind the document given last; *ret_all is 0 where a pipe is
 * among them. */
void tern_data_feed_progress(const struct tern_data_feed *f, uint64_t *ret_done, uint64_t *ret_all);
/* Of one file; whole once a document of a later one was given, or the end. */
struct tern_text_counts tern_data_feed_counts(const struct tern_data_feed *f, size_t path);
void tern_data_feed_close(struct tern_data_feed *f); /* NULL is fine */

#endif
