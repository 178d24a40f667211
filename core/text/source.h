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
    uint64_t line; /* lines before it, from byte `from` of the file on */
    uint64_t from;
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
    uint64_t from;   /* where reading began: 0, or that of tern_text_source_range */
    /* Lines before rest[0], from there on.  The caller counts them: only it knows whether it reads
     * them anyway. */
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
/* Can documents be found from any byte on?  In lines or parts of a file that is not compressed. */
bool tern_text_source_cuttable(const struct tern_text_source *s);
/* Of such a file: the first byte, `at` or behind it, where a document begins; the file's size where
 * none does. */
int tern_text_source_boundary(const struct tern_text_source *s, uint64_t at, uint64_t *ret_at,
                              struct tern_err *err);
/* Before the first cut: only the documents from byte `from` to byte `to`, both boundaries. */
int tern_text_source_range(struct tern_text_source *s, uint64_t from, uint64_t to,
                           struct tern_err *err);
void tern_text_source_close(struct tern_text_source *s); /* NULL is fine */

/* How many lines end before byte `from` of a file, for a message; what cannot be read has none. */
uint64_t tern_text_lines(const char *path, uint64_t from);
/* "-" as messages call it. */
const char *tern_text_source_name(const char *path);
/* Is this the line that parts documents? */
bool tern_text_is_split(const char *split, const char *line, size_t len);

#endif
