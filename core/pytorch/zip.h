/* The directory of a zip archive, read with distrust (PKWARE's APPNOTE.TXT 6.3). */
#ifndef TERN_PYTORCH_ZIP_H
#define TERN_PYTORCH_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_pytorch_zip_entry {
    const char *name; /* [name_len], in the file */
    size_t name_len;
    uint64_t header;    /* where its local header begins */
    uint64_t at, bytes; /* its data, as they lie in the file */
    bool plain;         /* neither compressed nor encrypted */
};

struct tern_pytorch_zip {
    struct tern_pytorch_zip_entry *entries; /* [n], by name */
    size_t n;
};

/* Does the file begin as a zip archive? */
bool tern_pytorch_zip_is(const uint8_t *data, size_t len);

/* Every entry lies in the file, behind a local header of the same name, and no two overlap; no name
 * is there twice.  Free with tern_pytorch_zip_free. */
int tern_pytorch_zip_read(const uint8_t *data, size_t len, const char *path,
                          struct tern_pytorch_zip *ret_zip, struct tern_err *err);
void tern_pytorch_zip_free(struct tern_pytorch_zip *z);

/* NULL when there is none. */
const struct tern_pytorch_zip_entry *tern_pytorch_zip_find(const struct tern_pytorch_zip *z,
                                                           const char *name, size_t len);

#endif
