/* What the name of a file says about its text. */
#ifndef TERN_TEXT_NAMES_H
#define TERN_TEXT_NAMES_H

#include "core/text/text.h"

enum tern_text_name {
    TERN_TEXT_NAME_JSONL,  /* .jsonl, .jsonlines, .ndjson, .ldjson, with more behind them, too */
    TERN_TEXT_NAME_JSON,   /* .json: one document or lines */
    TERN_TEXT_NAME_TEXT,   /* .txt, .md and others of prose */
    TERN_TEXT_NAME_BARE,   /* without a suffix, or with digits alone: wiki_00, part.0001 */
    TERN_TEXT_NAME_BESIDE, /* beside data: README, LICENSE, checksums, copies, partial files */
    TERN_TEXT_NAME_PARQUET,
    TERN_TEXT_NAME_ARROW,
    TERN_TEXT_NAME_OTHER,
};

/* Suffixes of compressed files are seen through; capitals do not count. */
enum tern_text_name tern_text_name_of(const char *name); /* not TERN_TEXT_NAME_BESIDE */
enum tern_text_name tern_text_name_in_folder(const char *name);
/* Which names files of a folder have. */
struct tern_text_names {
    bool has[TERN_TEXT_NAME_OTHER + 1];
};
/* Is a file of a folder read? */
bool tern_text_name_taken(enum tern_text_name name, enum tern_text_format format,
                          const struct tern_text_names *all);

#endif
