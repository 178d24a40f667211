/* Documents as Megatron-LM and NeMo read them. */
#include "core/export/megatron.h"

#include "core/base/str.h"
#include "core/export/export.h"
#include "core/export/folder.h"

#include <stdlib.h>
#include <string.h>

enum {
    MANY = 1 << 18, /* tokens at a time */
    NARROW = 65500, /* a vocabulary below it has u16, as Megatron-LM's DType.optimal_dtype */
};

static int write_bin(struct tern_export_file *f, const struct tern_data_set *s,
                     const struct tern_export_to *to, unsigned bytes, struct tern_err *err)
{
    const uint64_t all = tern_data_set_n_tokens(s);
    int32_t *ids = tern_alloc(MANY, sizeof *ids, "tokens", err);
    int rc = ids ? 0 : -1;

    for (uint64_t at = 0; at < all && rc == 0;) {
        const size_t n = all - at < MANY ? (size_t)(all - at) : MANY;
        rc = tern_data_set_read(s, at, n, ids, err);
        if (rc == 0 && bytes == sizeof(uint16_t)) /* forward: no id is overwritten unread */
            for (size_t i = 0; i < n; i++)
                memcpy((char *)ids + bytes * i, &(uint16_t){(uint16_t)ids[i]}, bytes);
        if (rc == 0)
            rc = tern_export_file_add(f, ids, n * bytes, err);
        if (rc == 0)
            rc = tern_export_stopped(to->stop, to->dir, err);
        at += n;
        if (to->progress)
            to->progress(at, all);
    }
    free(ids);
    return rc;
}

static int add_number(struct tern_export_file *f, int64_t v, size_t bytes, struct tern_err *err)
{
    return tern_export_file_add(f, &v, bytes, err);
}

/* Lengths, then places: the documents are gone through for each. */
static int write_index(struct tern_export_file *f, const struct tern_data_set *s, unsigned bytes,
                       struct tern_err *err)
{
    const uint64_t n = tern_data_set_n_docs(s);
    struct tern_data_set_doc d;
    struct tern_export_megatron_head head = {.version = 1,
                                             .type = bytes == sizeof(uint16_t) ? TERN_EXPORT_U16
                                                                               : TERN_EXPORT_I32,
                                             .n_sequences = n,
                                             .n_documents = n + 1};

    memcpy(head.magic, TERN_EXPORT_MEGATRON_MAGIC, sizeof head.magic);
    if (tern_export_file_add(f, &head, sizeof head, err) < 0)
        return -1;
    for (uint64_t i = 0; i < n; i++) {
        if (tern_data_set_doc(s, i, &d, err) < 0)
            return -1;
        if (d.n_tokens > INT32_MAX)
            return tern_err_set(err, TERN_USAGE,
                                "%s: document %llu has %llu tokens; Megatron's files have room for "
                                "%d",
                                tern_data_set_path(s), (unsigned long long)i,
                                (unsigned long long)d.n_tokens, INT32_MAX);
        if (add_number(f, (int64_t)d.n_tokens, sizeof(int32_t), err) < 0)
            return -1;
    }
    for (uint64_t i = 0; i < n; i++)
        if (tern_data_set_doc(s, i, &d, err) < 0 ||
            add_number(f, (int64_t)(d.first_token * bytes), sizeof(int64_t), err) < 0)
            return -1;
    for (uint64_t i = 0; i <= n; i++)
        if (add_number(f, (int64_t)i, sizeof(int64_t), err) < 0)
            return -1;
    return 0;
}

static int write_both(const struct tern_export_folder *folder, const struct tern_data_set *s,
                      const struct tern_export_to *to, struct tern_export_done *done,
                      struct tern_err *err)
{
    const unsigned bytes = tern_data_set_n_vocab(s) < NARROW ? 2 : 4;
    struct tern_export_file f;

    /* First the index, which may find a document too long. */
    if (tern_export_file_open(&f, folder, "tokens.idx", err) < 0)
        return -1;
    int rc = write_index(&f, s, bytes, err);
    done->bytes = f.bytes;
    if (tern_export_file_close(&f, rc, err) < 0 ||
        tern_export_file_open(&f, folder, "tokens.bin", err) < 0)
        return -1;
    rc = write_bin(&f, s, to, bytes, err);
    done->bytes += f.bytes;
    return tern_export_file_close(&f, rc, err);
}

int tern_export_megatron(const struct tern_data_set *s, const struct tern_export_to *to,
                         struct tern_export_done *ret_done, struct tern_err *err)
{
    struct tern_export_done done = {
        .tokens = tern_data_set_n_tokens(s), .documents = tern_data_set_n_docs(s), .files = 2};
    struct tern_export_folder folder;

    if (tern_data_set_has_mask(s))
        return tern_err_set(err, TERN_USAGE,
                            "%s: has a mask, and Megatron's files have no place for it. Export it "
                            "--to datasets.",
                            tern_data_set_path(s));
    if (tern_export_folder_begin(&folder, to->dir, err) < 0)
        return -1;
    const int rc = tern_export_folder_end(&folder, write_both(&folder, s, to, &done, err), err);
    if (rc == 0)
        *ret_done = done;
    return rc;
}
