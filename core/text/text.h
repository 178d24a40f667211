/* Files of text as documents: JSON lines, records of Semantic Scholar, articles of Wikicorpus,
 * plain text; compressed or not.
 */
#ifndef TERN_TEXT_TEXT_H
#define TERN_TEXT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

enum tern_text_format {
    TERN_TEXT_AUTO,  /* by name: .jsonl, .jsonlines, .ndjson, in capitals, with more behind
                        them, are JSONL; .json is refused.  Another file whose first line is a JSON
                        object is JSONL if that has the field, and refused if not, as is one that
                        looks like JSON otherwise (json_like.h); one that begins with "<doc id=" is
                        Wikicorpus.  Others are text */
    TERN_TEXT_JSONL, /* one object a line, the text under a field */
    TERN_TEXT_S2ORC, /* JSONL of Semantic Scholar: the field is body_text[].text, content.text
                       or body.text, whichever a line has */
    TERN_TEXT_PLAIN, /* a file is a document, or several parted by a line */
    /* Articles from a line <doc ...> to a line </doc>, as the raw files of Wikicorpus and those of
     * WikiExtractor have them.  Blanks at both ends, CR before a newline and the line ENDOFARTICLE.
     * do not belong to the text; entities stay as they are. */
    TERN_TEXT_WIKICORPUS,
    /* Rows of an Arrow file, as `datasets` saves them: the text is the column `field`, or they are
     * records.  Found with
     * TERN_TEXT_AUTO, by the first bytes of a file that is not compressed. */
    TERN_TEXT_ARROW,
};

enum tern_text_encoding {
    TERN_TEXT_ENCODING_AUTO, /* UTF-8; Latin-1 for Wikicorpus, which is refused if it is UTF-8 */
    TERN_TEXT_UTF8,
    TERN_TEXT_LATIN1,
};

/* How a document that is not UTF-8 is treated. */
enum tern_text_invalid {
    TERN_TEXT_REFUSE,  /* an error with file, offset and count */
    TERN_TEXT_REPLACE, /* each bad byte becomes U+FFFD */
    TERN_TEXT_SKIP,    /* it is left out */
};

struct tern_text_how {
    enum tern_text_format format;
    /* JSONL: the field that holds the text; NULL means "text".  Also a path: "content.text"; with
     * [] through lists, whose strings are joined by newlines: "body_text[].text". */
    const char *field;
    /* Plain: a line that is exactly this parts documents ("" for blank lines, "%" for fortunes);
     * the newline before it belongs to neither.  NULL: the file is one document. */
    const char *split;
    enum tern_text_encoding encoding;
    enum tern_text_invalid invalid;
    uint64_t min_bytes; /* shorter documents, in UTF-8, are left out, but for empty ones */
    /* JSONL: lines without the field, or that are no object, are left out.  Wikicorpus: articles
     * without a line </doc>, and text outside of them. */
    bool skip_bad;
    /* Documents are records: lines of JSONL, whole and unread, but for UTF-8 (blank ones are not
     * given), and rows of Arrow files as such lines.  min_bytes is then the caller's. */
    bool records;
    /* With records: which fields of Arrow files are read, by their paths ("messages",
     * "messages[].role"). */
    bool (*reads)(const void *arg, const char *path);
    const void *reads_arg;
    /* Not 0, perhaps set by a signal's handler: waiting for a pipe ends with an error.  May be
     * NULL. */
    const int *stop;
};

enum { TERN_TEXT_BAD_NAMED = 10 };

/* Bad input so far. */
struct tern_text_counts {
    uint64_t replaced;                      /* bytes that were no UTF-8 */
    uint64_t skipped;                       /* documents that were not */
    uint64_t too_short;                     /* documents below min_bytes */
    uint64_t bad;                           /* lines */
    uint64_t marks;                         /* byte order marks before lines, left out */
    uint64_t lines;                         /* read, of JSONL and of parted text */
    uint64_t bad_line[TERN_TEXT_BAD_NAMED]; /* the first bad ones: 1, or counted from where
                                               reading began */
};
void tern_text_counts_add(struct tern_text_counts *to, const struct tern_text_counts *more);

/* Of compressed files; NULL at the end. */
extern const char *const tern_text_suffixes[];

/* The files that arguments mean.  A folder means the files of text below it, in the order of their
 * paths' bytes.  They are the JSONL files where there are some by their names, else the Arrow
 * files.  Else they are .txt, .md and others of prose, and files without a suffix.  One that
 * `datasets` saved means the files that its state.json lists.  A format that is not TERN_TEXT_AUTO
 * also takes suffixes that it does not know.  Links are followed, not back to a folder that holds
 * them. Hidden files and folders are left out; the log names other files that are.  A file that is
 * found twice in folders is read once. */
struct tern_text_files {
    char **paths; /* malloc'ed, as each of them */
    size_t n;
};
/* TERN_USAGE for an argument that is missing, and for a folder without text. */
int tern_text_files_find(char *const *args, size_t n_args, enum tern_text_format format,
                         struct tern_text_files *ret_files, struct tern_err *err);
void tern_text_files_free(struct tern_text_files *f); /* {0} is fine */

/* The documents of one file, in order, compressed or not (gzip, Zstandard, bzip2, xz, by its first
 * bytes); "-" is standard input.  One thread at a
 * time. */
struct tern_text;
struct tern_text *tern_text_open(const char *path, const struct tern_text_how *how,
                                 struct tern_err *err);
/* 1 and the next document (valid until the next call), 0 at the end, -1 on an error that names
 * file:line.  A document may be empty. */
int tern_text_next(struct tern_text *t, const char **text, size_t *len, struct tern_err *err);
/* Bytes of the file consumed so far, as stored, and its size, for progress. */
void tern_text_progress(const struct tern_text *t, uint64_t *done_bytes, uint64_t *all_bytes);
struct tern_text_counts tern_text_counts(const struct tern_text *t);
void tern_text_close(struct tern_text *t); /* NULL is fine */

#endif
