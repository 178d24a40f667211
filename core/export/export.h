/* Token sets for other trainers, and their tokens as a token set.
 *
 * `datasets` (Dataset.load_from_disk: run_llama_nxd.py of NeuronX Distributed, Optimum Neuron,
 * run_clm): rows of seq_len ids in the columns
 *
 *     input_ids       list<int32>
 *     attention_mask  list<int8>     0 where the row is filled up, else 1
 *     labels          list<int64>    the id; -100 where it is no target, and where the row is
 * filled up
 *
 * Those trainers shift inside: place j predicts labels[j + 1].  A row has the targets of a row of
 * tern, so each token of a set is in exactly one row.  As the first of a row it is no target.
 *
 * Megatron-LM and NeMo (MMapIndexedDataset): tokens.bin has the ids of all documents, tokens.idx
 * their lengths and places (megatron.h).
 *
 * What is written is a folder that appears whole or not at all.
 */
#ifndef TERN_EXPORT_EXPORT_H
#define TERN_EXPORT_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/data/data.h"
#include "core/token/token.h"

enum { TERN_EXPORT_LENGTH_MAX = 1 << 24 }; /* tokens of a row */

/* Called now and then with what is done of all (rows or tokens); may be NULL. */
typedef void tern_export_progress(uint64_t done, uint64_t all);

struct tern_export_to {
    const char *dir; /* free: tern_fs_is_free; looked at before the first row */
    const int *stop; /* not 0, perhaps set by a signal's handler: ends with an error */
    tern_export_progress *progress;
};

struct tern_export_done {
    uint64_t rows, tokens; /* rows: of `datasets`; tokens: without those that fill up */
    uint64_t bytes;        /* of all files */
    uint64_t documents;    /* of Megatron */
    uint32_t files;        /* .arrow; .bin and .idx */
};

/* Rows first .. first + n - 1, as tern_data_set_row or tern_data_stages_sample gives them. */
struct tern_export_rows {
    int (*row)(const void *of, uint64_t row, int32_t *tokens, uint8_t *mask, struct tern_err *err);
    /* How many of its targets are tokens of a set; EOS fills up the others. */
    uint32_t (*filled)(const void *of, uint64_t row);
    const void *of;
    uint64_t first, n;                   /* n > 0 */
    uint32_t seq_len;                    /* 1 .. TERN_EXPORT_LENGTH_MAX */
    uint32_t eos;                        /* it fills up rows */
    const char *split;                   /* "train"; NULL: none */
    const char *about;                   /* a sentence for dataset_info.json */
    uint64_t file_bytes;                 /* of a file at most, but for a file of one row; > 0 */
    uint8_t identity[TERN_SHA256_BYTES]; /* of the rows: `datasets` names its caches for it */
};
/* Is it a split's name that `datasets` takes (NamedSplit)?  With another one load_from_disk fails.
 */
int tern_export_check_split(const char *name, struct tern_err *err);
/* Memory: 16 MiB of rows, or one row. */
int tern_export_datasets(const struct tern_export_rows *rows, const struct tern_export_to *to,
                         struct tern_export_done *ret_done, struct tern_err *err);

/* All documents of a set, each with its EOS.  A set with a mask is an error: the files have no
 * place for it. */
int tern_export_megatron(const struct tern_data_set *s, const struct tern_export_to *to,
                         struct tern_export_done *ret_done, struct tern_err *err);

/* ---- back ---- */

/* Where documents end. */
enum tern_export_documents {
    TERN_EXPORT_AS_STORED, /* rows of `datasets`: BY_EOS; Megatron, whose index says: BY_ROW */
    TERN_EXPORT_BY_EOS,    /* with EOS, wherever rows end; at the end of a Megatron document, too */
    TERN_EXPORT_BY_ROW,    /* each row, or document of Megatron's index, is one: chats have EOS
                              inside.  An EOS at its end is its own, and one that lacks it gets it */
};

struct tern_export_from {
    const char *path;   /* a folder of `datasets` or of tern, a file .arrow, or Megatron's PREFIX */
    const char *column; /* of the ids: "input_ids" */
    const struct tern_token *token; /* for EOS, BOS and the bytes of a document's text */
    bool bos;                       /* documents begin with BOS, which the set notes as its own */
    bool mask;                      /* keep what labels leave out (-100) as the set's mask */
    enum tern_export_documents documents;
    const int *stop;
    tern_export_progress *progress;
};
struct tern_export_back {
    uint64_t rows, documents, tokens, filled; /* filled: places left out, attention_mask is 0 */
};
/* `writer` was made with tern_export_kind and stays the caller's. */
int tern_export_read(const struct tern_export_from *from, struct tern_data_set_writer *writer,
                     struct tern_export_back *ret_back, struct tern_err *err);
/* Of the set that is read back; an error where the tokenizer has no EOS, or no BOS and one is asked
 * for. */
int tern_export_kind(const struct tern_export_from *from, struct tern_data_set_kind *ret_kind,
                     struct tern_err *err);

#endif
