/* Documents of one file, one after the other. */
#include "core/base/str.h"
#include "core/text/parse.h"

#include <stdlib.h>

struct tern_text {
    struct tern_text_how how;
    char *field, *split;
    struct tern_text_source *source;
    struct tern_text_chunk chunk;
    struct tern_text_parser parser;
    struct tern_text_counts counts; /* of the pieces before */
};

struct tern_text *tern_text_open(const char *path, const struct tern_text_how *how,
                                 struct tern_err *err)
{
    struct tern_text *t = tern_alloc(1, sizeof *t, "a text", err);

    if (!t)
        return NULL;
    t->how = *how;
    t->how.field = t->field = how->field ? tern_strdup(how->field) : NULL;
    t->how.split = t->split = how->split ? tern_strdup(how->split) : NULL;
    t->source = tern_text_source_open(path, &t->how, err);
    if (!t->source) {
        tern_text_close(t);
        return NULL;
    }
    return t;
}

void tern_text_close(struct tern_text *t)
{
    if (!t)
        return;
    tern_text_source_close(t->source);
    tern_text_parser_free(&t->parser);
    tern_text_chunk_free(&t->chunk);
    free(t->field);
    free(t->split);
    free(t);
}

void tern_text_progress(const struct tern_text *t, uint64_t *done_bytes, uint64_t *all_bytes)
{
    *done_bytes = tern_text_source_done(t->source);
    *all_bytes = t->source->file_bytes;
}

void tern_text_counts_add(struct tern_text_counts *to, const struct tern_text_counts *more)
{
    for (uint64_t i = 0; i < more->bad && i < TERN_TEXT_BAD_NAMED; i++)
        if (to->bad + i < TERN_TEXT_BAD_NAMED)
            to->bad_line[to->bad + i] = more->bad_line[i];
    to->bad += more->bad;
    to->lines += more->lines;
    to->marks += more->marks;
    to->replaced += more->replaced;
    to->skipped += more->skipped;
    to->too_short += more->too_short;
}

struct tern_text_counts tern_text_counts(const struct tern_text *t)
{
    struct tern_text_counts all = t->counts;

    tern_text_counts_add(&all, &t->parser.counts);
    return all;
}

int tern_text_next(struct tern_text *t, const char **text, size_t *len, struct tern_err *err)
{
    int rc;

    for (;;) {
        if (t->parser.chunk && (rc = tern_text_parser_next(&t->parser, text, len, err)) != 0)
            return rc;
        if (t->parser.chunk)
            t->source->line = t->parser.line;
        if ((rc = tern_text_source_cut(t->source, &t->chunk, err)) <= 0)
            return rc;
        tern_text_counts_add(&t->counts, &t->parser.counts);
        tern_text_parser_begin(&t->parser, &t->how, t->source->path, t->source->format, &t->chunk);
    }
}
