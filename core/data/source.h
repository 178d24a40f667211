/* A file of texts, cut into pieces where documents end.  One thread cuts; any number may read the
 * documents of a piece (parse.h). */
#ifndef TERN_DATA_SOURCE_H
#define TERN_DATA_SOURCE_H

#include "core/data/data.h"

/* Whole documents: bytes[at .. end).  {0} to begin; free with tern_data_chunk_free. */
struct tern_data_chunk {
    char *bytes;
    size_t at, end, cap;
    uint64_t base; /* of bytes[0] in the text */
    uint64_t line; /* lines before it */
};
void tern_data_chunk_free(struct tern_data_chunk *c);

struct tern_data_source {
    char *path; /* for messages */
    enum tern_data_text_format format;
    const struct tern_data_text_how *how;
    struct tern_data_bytes *file;
    uint64_t file_bytes;
    /* Read and not yet cut. */
    char *rest;
    size_t n_rest;
    bool eof, given; /* given: a file that is one document has been */
    uint64_t base;   /* of rest[0] in the text */
    /* Lines before rest[0].  The caller counts them: only it knows whether it reads them anyway. */
    uint64_t line;
};

/* `path`, "-" for standard input; finds the format.  `how` is kept. */
struct tern_data_source *
tern_data_source_open(const char *path, const struct tern_data_text_how *how, struct tern_err *err);
/* The next documents into `c`: 1; 0 at the end; -1. */
int tern_data_source_cut(struct tern_data_source *s, struct tern_data_chunk *c,
                         struct tern_err *err);
void tern_data_source_close(struct tern_data_source *s); /* NULL is fine */

/* "-" as messages call it. */
const char *tern_data_source_name(const char *path);
/* Is this the line that parts documents? */
bool tern_data_is_split(const char *split, const char *line, size_t len);

#endif
