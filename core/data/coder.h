/* One thread's way from pieces of files to documents as tokens: feed.c's workers. */
#ifndef TERN_DATA_CODER_H
#define TERN_DATA_CODER_H

#include "core/data/feed.h"
#include "core/text/parse.h"

/* {.how = ...} to begin; free with tern_data_coder_free. */
struct tern_data_coder {
    const struct tern_data_feed_how *how;
    struct tern_token_encoder *encoder;
    void *records; /* how->records' state */
    struct tern_text_parser parser;
    uint8_t hash[TERN_DATA_HASH]; /* of the document given last */
};

/* A piece of how->paths[path], which is kept until it is used up. */
void tern_data_coder_begin(struct tern_data_coder *c, size_t path, enum tern_text_format format,
                           struct tern_text_chunk *chunk);
/* Its next document: 1, 0 at its end, -1. */
int tern_data_coder_next(struct tern_data_coder *c, size_t path, struct tern_data_feed_doc *ret_doc,
                         struct tern_err *err);
void tern_data_coder_free(struct tern_data_coder *c);

#endif
