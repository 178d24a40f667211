/* A file of texts, cut into pieces where documents end.  One thread cuts; any number may read the
 * documents of a piece (parse.h). */
#ifndef TERN_TEXT_SOURCE_H
#define TERN_TEXT_SOURCE_H

#include "core/text/latin1.h"
#include "core/text/text.h"

/* Whole documents: bytes[at .. end).  {0} to begin; free with tern_text_chunk_free. */
struct tern_text_chunk {
    char *bytes;
    size_t at, end, cap;
    uint64_t base; /* of bytes[0] in the text */
    uint64_t line; /* lines before it */
};
void tern_text_chunk_free(struct tern_text_chunk *c);

struct tern_text_source {
    char *path; /* for messages */
    enum tern_text_format format;
    const struct tern_text_how *how;
    struct tern_text_bytes *file;
    struct tern_text_table *table; /* of an Arrow file, else NULL */
    bool is_latin1;
    struct tern_text_latin1 latin1;
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
struct tern_text_source *tern_text_source_open(const char *path, const struct tern_text_how *how,
                                               struct tern_err *err);
/* The next documents into `c`: 1; 0 at the end; -1. */
int tern_text_source_cut(struct tern_text_source *s, struct tern_text_chunk *c,
                         struct tern_err *err);
/* Bytes of the file consumed so far, as stored. */
uint64_t tern_text_source_done(const struct tern_text_source *s);
void tern_text_source_close(struct tern_text_source *s); /* NULL is fine */

/* "-" as messages call it. */
const char *tern_text_source_name(const char *path);
/* Is this the line that parts documents? */
bool tern_text_is_split(const char *split, const char *line, size_t len);

#endif
