/* tern data: shared by its verbs. */
#ifndef TERN_CMD_DATA_DATA_H
#define TERN_CMD_DATA_DATA_H

#include "core/base/opt.h"
#include "core/data/data.h"
#include "core/data/feed.h"
#include "core/token/token.h"

/* Where text comes from and how it is read: the same rows in build and encode. */
struct data_text_opts {
    const char *tokenizer, *format, *field, *split, *encoding, *invalid;
    bool skip_bad, specials;
    int64_t threads, min_length;
};

#define DATA_TOKENIZER_ROW(dest)                                                                   \
    {                                                                                              \
        "tokenizer", 't', TERN_OPT_TEXT, "PATH",                                                   \
            .to.text = &(dest), .help = "the model's folder, tokenizer.model or tokenizer.json"    \
    }
#define DATA_TEXT_ROWS(o)                                                                          \
    DATA_TOKENIZER_ROW((o).tokenizer),                                                             \
        {"format",                                                                                 \
         0,                                                                                        \
         TERN_OPT_TEXT,                                                                            \
         "FORMAT",                                                                                 \
         .def = "auto",                                                                            \
         .to.text = &(o).format,                                                                   \
         .help =                                                                                   \
             "jsonl, s2orc (papers of Semantic Scholar), wikicorpus (articles from <doc ...> "     \
             "to </doc>; entities stay as they are), text, or auto. auto: by the name and the "    \
             "first line, Arrow files of `datasets` by their first bytes. .gz, .zst, .bz2 and "    \
             ".xz are seen through"},                                                              \
        {"encoding",                                                                               \
         0,                                                                                        \
         TERN_OPT_TEXT,                                                                            \
         "NAME",                                                                                   \
         .def = "auto",                                                                            \
         .to.text = &(o).encoding,                                                                 \
         .help =                                                                                   \
             "of the files: utf-8, latin-1, or auto (utf-8, but latin-1 for wikicorpus, as it "    \
             "is published)"},                                                                     \
        {"field",                                                                                  \
         0,                                                                                        \
         TERN_OPT_TEXT,                                                                            \
         "NAME",                                                                                   \
         .def = "text",                                                                            \
         .to.text = &(o).field,                                                                    \
         .help = "the JSONL field, or Arrow column, that holds the text; a path leads into "       \
                 "objects and lists: "                                                             \
                 "body_text[].text"},                                                              \
        {"invalid",                                                                                \
         0,                                                                                        \
         TERN_OPT_TEXT,                                                                            \
         "HOW",                                                                                    \
         .def = "refuse",                                                                          \
         .to.text = &(o).invalid,                                                                  \
         .help = "of documents that are not UTF-8: refuse, replace (each such byte by U+FFFD) or " \
                 "skip"},                                                                          \
        {"skip-bad", 0, TERN_OPT_FLAG, .to.flag = &(o).skip_bad,                                   \
         .help = "leave out JSONL lines and articles that cannot be read, and count them"},        \
        {"specials", 0, TERN_OPT_FLAG, .to.flag = &(o).specials,                                   \
         .help = "find special tokens in text, as tokenizers of Hugging Face does unless it is "   \
                 "asked not to; else they are text. A SentencePiece model finds none"},            \
        {"min-length",                                                                             \
         0,                                                                                        \
         TERN_OPT_INT,                                                                             \
         "BYTES",                                                                                  \
         .def = "0",                                                                               \
         .to.integer = &(o).min_length,                                                            \
         .help = "leave out documents with less text, and count them"},                            \
        {"threads",                                                                                \
         0,                                                                                        \
         TERN_OPT_INT,                                                                             \
         "N",                                                                                      \
         .def = "0",                                                                               \
         .to.integer = &(o).threads,                                                               \
         .help = "threads that tokenise; 0: one for each CPU. What is written is the same"},       \
    {                                                                                              \
        "split", 0, TERN_OPT_TEXT, "LINE",                                                         \
            .to.text = &(o).split,                                                                 \
            .help =                                                                                \
                "text: a line that is LINE parts documents ('' blank lines, % fortunes); else a "  \
                "file is one document"                                                             \
    }

/* The tokenizer of --tokenizer, which has no default. */
struct tern_token *data_load_tokenizer(const char *path, struct tern_err *err);
/* The files that arguments mean; free with tern_text_files_free. */
int data_files(const struct data_text_opts *o, char *const *args, int n_args,
               struct tern_text_files *ret_files, struct tern_err *err);
/* Is the set of this tokenizer's vocabulary? */
int data_check_vocabulary(const struct tern_data_set *s, const struct tern_token *t,
                          struct tern_err *err);
/* How texts are read, and how their tokens are fed.  `stop` as in tern_text_how; what is given is
 * kept. */
int data_text_how(const struct data_text_opts *o, struct tern_text_how *how, struct tern_err *err);
int data_feed_how(const struct data_text_opts *o, const struct tern_token *t, char *const *paths,
                  int n_paths, const int *stop, struct tern_data_feed_how *ret_how,
                  struct tern_err *err);
/* The documents of `paths` (kept) as tokens.  `stop` as in tern_text_how. */
struct tern_data_feed *data_feed_open(const struct data_text_opts *o, const struct tern_token *t,
                                      char *const *paths, int n_paths, const int *stop,
                                      struct tern_err *err);
/* Log how much of each file was replaced or left out, if anything. */
void data_log_path(const char *path, const struct tern_text_counts *c);
void data_log_counts(const struct tern_data_feed *f, char *const *paths, int n_paths);

/* Samples of a run: "4096" or "4096-4159". */
int data_read_range(const char *text, uint64_t *first, uint64_t *last, struct tern_err *err);

/* Refused where an object `url` is there that is no token set. */
int data_push_check(const char *url, const int *stop, struct tern_err *err);
/* The file `path` becomes the object `url`, after that check.  `stop` as in tern_store_how. */
int data_push_file(const char *path, const char *url, const int *stop, struct tern_err *err);

extern const struct tern_cmd data_build, data_merge_cmd, data_info, data_overlap, data_plan,
    data_sample, data_stat, data_export, data_import, data_push;

#endif
