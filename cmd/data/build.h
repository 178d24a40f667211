/* tern data build: one set from files, in one pass or in parts. */
#ifndef TERN_CMD_DATA_BUILD_H
#define TERN_CMD_DATA_BUILD_H

#include "cmd/data/data.h"
#include "core/base/json.h"
#include "core/data/part.h"

/* What is asked for. */
struct data_build {
    struct data_text_opts text;
    bool bos, dedup;
    const char *out;
    char *const *paths;
    size_t n_paths;
    struct tern_token *token;
    struct tern_data_set_kind kind;
    const struct tern_data_feed_records *records; /* NULL: documents are texts */
    json_t *notes;   /* how records become documents; NULL with texts */
    const int *stop; /* a signal's number, or 0 */
};

/* What came of it; kept whole through parts and their merge. */
struct data_path_sum {
    uint64_t docs, tokens;
    struct tern_text_counts counts;
};
struct data_sums {
    size_t n_paths;
    char *const *paths;
    struct data_path_sum *path; /* [n_paths] */
    uint64_t docs, tokens, bytes, empty, duplicates;
    bool resumed;  /* some was done before: its time is not known */
    bool records;  /* documents are records of a template, which may be cut */
    bool specials; /* --specials */
};
int data_sums_open(struct data_sums *s, char *const *paths, size_t n_paths, struct tern_err *err);
void data_sums_free(struct data_sums *s);

/* A share of the files.  parts 0: all of them, into the set itself. */
struct data_share {
    uint64_t part, parts; /* part: from 0 */
    const char *inputs;   /* tern_data_shares_digest */
    struct tern_data_place from, to;
};

/* Is called between documents, with bytes as stored: progress, heartbeats. */
struct data_tick {
    int (*tick)(void *arg, uint64_t done, uint64_t all, const struct data_sums *s,
                struct tern_err *err);
    void *arg;
};
/* The tick that tells core/base/progress.h. */
int data_show(void *unused, uint64_t done, uint64_t all, const struct data_sums *s,
              struct tern_err *err);

/* Tokenise a share into the file `to`, which appears whole or not at all. */
int data_write(const struct data_build *b, const struct data_share *share, const char *to,
               struct data_sums *sums, const struct data_tick *tick, struct tern_err *err);
/* What makes documents and ids what they are: parts of one build agree on it.  A new reference. */
json_t *data_build_options(const struct data_build *b);
/* The notes of a set; malloc'ed.  `records`: of how records became documents, or NULL. */
char *data_meta(const char *tokenizer, const char *file, const char *format, const json_t *records,
                const struct data_sums *s, struct tern_err *err);
int data_interrupted(const struct data_build *b, struct tern_err *err);
/* The error that no document is left, with what was left out and the first bad line. */
int data_no_text(const char *out, const struct data_sums *s, struct tern_err *err);

/* ---- parts: part.c ---- */

/* What a part says of itself; malloc'ed. */
char *data_part_record(const struct data_build *b, const struct data_share *share,
                       const struct data_sums *s, struct tern_err *err);
/* --part K/N, K from 1. */
int data_part_parse(const char *text, uint64_t *ret_part, uint64_t *ret_parts,
                    struct tern_err *err);
int data_part_build(const struct data_build *b, uint64_t part, uint64_t parts,
                    struct data_sums *sums, struct tern_err *err);

/* ---- merging: merge.c ---- */

/* The set `out` of all parts, in any order. */
struct data_merge {
    char *const *parts;
    size_t n_parts;
    const char *out;
    const int *stop;
    const struct data_tick *tick; /* with bytes of parts */
    /* Asked before the set appears: does this process still merge?  NULL: yes. */
    bool (*held)(const void *arg);
    const void *held_arg;
};
/* *ret_sums is the caller's, with the paths in it: data_merge_free. */
int data_merge(const struct data_merge *m, struct data_sums *ret_sums, struct tern_err *err);
void data_merge_free(struct data_sums *s);

/* ---- sharing: share.c ---- */

/* This process among those of its Slurm step. */
struct data_step {
    int rank, tasks; /* 0 of 1 outside of one */
    char name[64];   /* differs from every other step's, and process's outside of one */
};
struct data_step data_step_local(void);
/* Is there a folder of parts for `out`? */
bool data_share_begun(const char *out);
/* Build `b` by shares of `share_bytes` (0: chosen by size) beside other processes that do the same,
 * and merge them.  *ret_sums is set where this process merged (n_paths is not 0).  The exit status,
 * or -1 with `err`. */
int data_share_build(const struct data_build *b, const struct data_step *step, uint64_t share_bytes,
                     struct data_sums *ret_sums, struct tern_err *err);

/* The summary of a finished build, and what was left out. */
void data_report(const char *out, const struct data_sums *s, double seconds);

#endif
