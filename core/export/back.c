/* Tokens of other trainers' files as a token set. */
#include "core/export/back.h"

#include "core/arrow/arrow.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/export/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    NO_TARGET = -100,
    TOKENS_MAX = 1 << 28, /* of a document: 1.25 GiB with its mask */
};

/* ---- documents ---- */

static int grow(struct tern_export_reading *r, const char *where, struct tern_err *err)
{
    const size_t cap = r->cap ? 2 * r->cap : 4096;

    if (cap > TOKENS_MAX && r->by_row)
        return tern_err_set(err, TERN_USAGE,
                            "%s: a document of more than %zu tokens. Where documents end with EOS "
                            "(id %u), say --documents eos.",
                            where, r->n, r->eos);
    if (cap > TOKENS_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: no EOS (id %u) in %zu tokens. Is the tokenizer the one that the "
                            "tokens are of? Where a row is a document, say --documents rows.",
                            where, r->eos, r->n);
    void *ids = realloc(r->ids, cap * sizeof *r->ids), *targets = realloc(r->targets, cap);
    r->ids = ids ? ids : r->ids;
    r->targets = targets ? targets : r->targets;
    if (!ids || !targets)
        return tern_err_sys(err, "%s: a document", where);
    r->cap = cap;
    return 0;
}

static int add_document(struct tern_export_reading *r, bool cut, const char *where,
                        struct tern_err *err)
{
    const size_t skip = r->bos >= 0;

    if (skip && (r->n == 0 || r->ids[0] != (uint32_t)r->bos))
        return tern_err_set(err, TERN_USAGE, "%s: a document does not begin with BOS (id %d)",
                            where, r->bos);
    r->text.len = 0;
    if (tern_token_decode(r->from->token, r->ids + skip, r->n - skip, &r->text, err) < 0 ||
        tern_data_set_add_cut(r->writer, r->ids + skip, r->from->mask ? r->targets + skip : NULL,
                              r->n - skip, cut, r->text.len, err) < 0)
        return -1;
    r->n = 0;
    r->back.documents++;
    r->back.tokens++; /* EOS */
    return 0;
}

int tern_export_back_token(struct tern_export_reading *r, int64_t id, bool target,
                           const char *where, struct tern_err *err)
{
    if (id < 0 || id >= (int64_t)r->n_vocab)
        return tern_err_set(err, TERN_USAGE,
                            "%s: token %lld; the vocabulary of %s ends at %u. Give the tokenizer "
                            "that the tokens are of.",
                            where, (long long)id, tern_token_path(r->from->token), r->n_vocab - 1);
    if ((uint32_t)id == r->eos && !r->by_row)
        return add_document(r, /* cut= */ r->from->mask && !target, where, err);
    if (r->n == r->cap && grow(r, where, err) < 0)
        return -1;
    r->ids[r->n] = (uint32_t)id;
    r->targets[r->n++] = target;
    r->back.tokens++;
    return 0;
}

int tern_export_back_end(struct tern_export_reading *r, const char *where, struct tern_err *err)
{
    bool cut = false;

    if (r->n == 0)
        return 0;
    if (r->by_row && r->ids[r->n - 1] == r->eos) { /* the writer puts it there again */
        r->n--;
        r->back.tokens--;
        cut = r->from->mask && !r->targets[r->n];
    }
    return add_document(r, cut, where, err);
}

/* ---- Arrow ---- */

struct columns {
    int ids, attention, labels; /* -1: not there */
};

/* A column that may be missing: *ret_column is -1.  `of_rows`: one that has no list is something
 * else, such as a row's class, and counts as missing. */
static int optional(struct tern_arrow *a, const char *name, bool of_rows, const char *path,
                    int *ret_column, struct tern_err *err)
{
    *ret_column = -1;
    for (size_t i = 0; i < tern_arrow_n_columns(a); i++) {
        const struct tern_arrow_column *c = tern_arrow_column(a, i);
        if (strcmp(c->name, name) != 0)
            continue;
        if (of_rows && c->kind != TERN_ARROW_INTS && c->kind != TERN_ARROW_OTHER)
            return 0;
        if (c->kind != TERN_ARROW_INTS)
            return tern_err_set(err, TERN_USAGE,
                                "%s: column '%s' is of type %.200s; lists of whole numbers are "
                                "needed",
                                path, name, c->type);
        *ret_column = (int)i;
        return tern_arrow_use(a, i, err);
    }
    return 0;
}

static int find_columns(const struct tern_export_reading *r, struct tern_arrow *a, const char *path,
                        struct columns *c, struct tern_err *err)
{
    c->ids = tern_arrow_find(a, r->from->column, err);
    if (c->ids < 0 || tern_arrow_use(a, (size_t)c->ids, err) < 0)
        return -1;
    const struct tern_arrow_column *ids = tern_arrow_column(a, (size_t)c->ids);
    if (ids->kind != TERN_ARROW_INTS)
        return tern_err_set(err, TERN_USAGE,
                            "%s: column '%s' is of type %s; lists of whole numbers are needed. "
                            "`tern data build` tokenises texts.",
                            path, ids->name, ids->type);
    if (optional(a, "attention_mask", /* of_rows= */ false, path, &c->attention, err) < 0 ||
        optional(a, "labels", /* of_rows= */ true, path, &c->labels, err) < 0)
        return -1;
    if (r->from->mask && c->labels < 0)
        return tern_err_set(err, TERN_USAGE, "%s: no column 'labels' to take the mask from", path);
    return 0;
}

/* Is place j of a row a target?  Its label is the id or -100. */
static int is_target(const struct tern_export_reading *r, int64_t label, int64_t id,
                     const char *where, bool *ret_target, struct tern_err *err)
{
    if (label != id && label != NO_TARGET)
        return tern_err_set(err, TERN_USAGE,
                            "%s: label %lld of token %lld: labels that are not the ids themselves "
                            "have no place in a token set",
                            where, (long long)label, (long long)id);
    if (label == NO_TARGET && !r->from->mask)
        return tern_err_set(err, TERN_USAGE,
                            "%s: labels leave out tokens (-100). Say --mask to keep that.", where);
    *ret_target = label == id;
    return 0;
}

static int read_row(struct tern_export_reading *r, const struct tern_arrow *a,
                    const struct columns *c, uint64_t row, const char *where, struct tern_err *err)
{
    struct tern_arrow_ints ids, attention, labels;

    if (!tern_arrow_ints(a, (size_t)c->ids, row, &ids))
        return tern_err_set(err, TERN_USAGE, "%s: a row without tokens (null)", where);
    const bool has_attention =
                   c->attention >= 0 && tern_arrow_ints(a, (size_t)c->attention, row, &attention),
               has_labels = c->labels >= 0 && tern_arrow_ints(a, (size_t)c->labels, row, &labels);
    if ((has_attention && attention.n != ids.n) || (has_labels && labels.n != ids.n))
        return tern_err_set(err, TERN_USAGE, "%s: columns of different lengths", where);
    for (size_t j = 0; j < ids.n; j++) {
        const int64_t id = tern_arrow_ints_at(&ids, j);
        bool target = true;
        if (has_attention && tern_arrow_ints_at(&attention, j) == 0) {
            r->back.filled++;
            continue;
        }
        if (has_labels && is_target(r, tern_arrow_ints_at(&labels, j), id, where, &target, err) < 0)
            return -1;
        if (tern_export_back_token(r, id, target, where, err) < 0)
            return -1;
    }
    r->back.rows++;
    return r->by_row ? tern_export_back_end(r, where, err) : 0;
}

static int read_batches(struct tern_export_reading *r, struct tern_arrow *a, const char *path,
                        const struct columns *c, struct tern_err *err)
{
    uint64_t row = 0, done, all;
    char where[600];
    int rc;

    while ((rc = tern_arrow_next(a, err)) > 0) {
        for (uint64_t i = 0; i < tern_arrow_rows(a); i++, row++) {
            snprintf(where, sizeof where, "%s: row %llu", path, (unsigned long long)row);
            if (read_row(r, a, c, i, where, err) < 0)
                return -1;
        }
        tern_arrow_progress(a, &done, &all);
        if (r->from->progress)
            r->from->progress(done, all);
        if (tern_export_stopped(r->from->stop, path, err) < 0)
            return -1;
    }
    return rc;
}

static int read_arrow(struct tern_export_reading *r, const char *path, struct tern_err *err)
{
    struct columns c;
    struct tern_arrow *a = tern_arrow_open(path, err);
    const int rc =
        a && find_columns(r, a, path, &c, err) == 0 ? read_batches(r, a, path, &c, err) : -1;

    tern_arrow_close(a);
    return rc;
}

static int read_dataset(struct tern_export_reading *r, const char *dir, struct tern_err *err)
{
    struct tern_arrow_dataset d;

    if (tern_arrow_dataset_list(dir, &d, err) < 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < d.n && rc == 0; i++)
        rc = read_arrow(r, d.path[i], err);
    tern_arrow_dataset_free(&d);
    return rc;
}

/* ---- whichever it is ---- */

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int read_any(struct tern_export_reading *r, struct tern_err *err)
{
    const char *path = r->from->path;
    char *prefix;

    r->by_row = r->from->documents == TERN_EXPORT_BY_ROW;
    if (is_folder(path) && tern_arrow_is_dataset(path))
        return read_dataset(r, path, err);
    if (tern_str_ends(path, ".arrow"))
        return read_arrow(r, path, err);
    if (is_folder(path))
        prefix = tern_fs_join(path, "tokens");
    else
        prefix = tern_strdup(path);
    if (tern_str_ends(prefix, ".idx") || tern_str_ends(prefix, ".bin"))
        prefix[strlen(prefix) - 4] = '\0';
    r->by_row = r->from->documents != TERN_EXPORT_BY_EOS;
    const int rc = tern_export_back_megatron(r, prefix, err);
    free(prefix);
    return rc;
}

int tern_export_kind(const struct tern_export_from *from, struct tern_data_set_kind *ret_kind,
                     struct tern_err *err)
{
    const struct tern_token *t = from->token;

    if (tern_token_eos(t) < 0 || (from->bos && tern_token_bos(t) < 0))
        return tern_err_set(err, TERN_USAGE,
                            "%s: has no %s token, which documents need. Its name is expected in a "
                            "tokenizer_config.json beside it.",
                            tern_token_path(t), tern_token_eos(t) < 0 ? "EOS" : "BOS");
    *ret_kind = (struct tern_data_set_kind){.n_vocab = tern_token_n_vocab(t),
                                            .eos = (uint32_t)tern_token_eos(t),
                                            .bos = from->bos ? tern_token_bos(t) : TERN_TOKEN_NONE,
                                            .mask = from->mask};
    tern_token_hash(t, ret_kind->vocab_hash);
    return 0;
}

int tern_export_read(const struct tern_export_from *from, struct tern_data_set_writer *writer,
                     struct tern_export_back *ret_back, struct tern_err *err)
{
    struct tern_export_reading r = {.from = from,
                                    .writer = writer,
                                    .eos = (uint32_t)tern_token_eos(from->token),
                                    .n_vocab = tern_token_n_vocab(from->token),
                                    .bos =
                                        from->bos ? tern_token_bos(from->token) : TERN_TOKEN_NONE};
    int rc = read_any(&r, err);

    if (rc == 0)
        rc = tern_export_back_end(&r, from->path, err);
    if (rc == 0 && r.back.documents == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s: no tokens; nothing was written", from->path);
    free(r.ids);
    free(r.targets);
    tern_buf_free(&r.text);
    if (rc == 0)
        *ret_back = r.back;
    return rc;
}
