/* Tokens that are read back, shared by the files of this room. */
#ifndef TERN_EXPORT_BACK_H
#define TERN_EXPORT_BACK_H

#include "core/export/export.h"

struct tern_export_reading {
    const struct tern_export_from *from;
    struct tern_data_set_writer *writer;
    uint32_t eos, n_vocab;
    int32_t bos; /* -1: documents begin without one */
    bool by_row; /* EOS ends no document */
    /* The document so far. */
    uint32_t *ids;
    uint8_t *targets;
    size_t n, cap;
    struct tern_buf text;
    struct tern_export_back back;
};

/* The next token; `where` for messages. */
int tern_export_back_token(struct tern_export_reading *r, int64_t id, bool target,
                           const char *where, struct tern_err *err);
/* The document ends, if one has begun. */
int tern_export_back_end(struct tern_export_reading *r, const char *where, struct tern_err *err);

/* Megatron's PREFIX.idx and PREFIX.bin. */
int tern_export_back_megatron(struct tern_export_reading *r, const char *prefix,
                              struct tern_err *err);

#endif
