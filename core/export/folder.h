/* A folder that grows beside its place. */
#ifndef TERN_EXPORT_FOLDER_H
#define TERN_EXPORT_FOLDER_H

#include "core/base/fs.h"

#include <stdint.h>

struct tern_export_folder {
    char *to, *temp; /* owned */
};

int tern_export_folder_begin(struct tern_export_folder *f, const char *dir, struct tern_err *err);
/* Rename it; on an error it is removed, too. */
int tern_export_folder_end(struct tern_export_folder *f, int rc, struct tern_err *err);

/* A file of the folder, written through a buffer. */
struct tern_export_file {
    int fd;
    char *path, *buffer;
    size_t n;
    uint64_t bytes; /* written and buffered */
};
int tern_export_file_open(struct tern_export_file *x, const struct tern_export_folder *f,
                          const char *name, struct tern_err *err);
int tern_export_file_add(struct tern_export_file *x, const void *data, size_t len,
                         struct tern_err *err);
/* Makes it durable where `rc` is 0, and frees. */
int tern_export_file_close(struct tern_export_file *x, int rc, struct tern_err *err);

/* Was a stop asked for?  The error says so. */
int tern_export_stopped(const int *stop, const char *path, struct tern_err *err);

#endif
