/* The header of a safetensors file, read with distrust. */
#ifndef TERN_CKPT_SAFETENSORS_H
#define TERN_CKPT_SAFETENSORS_H

#include "core/ckpt/ckpt.h"

/* The format's own ceiling for a header. */
enum { TERN_CKPT_ST_HEADER_MAX = 100 * 1000 * 1000 };

struct tern_ckpt_st_tensor {
    struct tern_ckpt_info info; /* the name is owned */
    uint64_t offset, bytes;     /* in the file */
};

struct tern_ckpt_st_header {
    struct tern_ckpt_st_tensor *tensors; /* by offset */
    size_t n;
    uint64_t bytes;     /* of the header with its length: where the data begins */
    uint64_t file_size; /* the data ends here, exactly */
};

/* The header of the open file `fd`, checked as the format's reference implementation does.  Types
 * are known and offsets agree with the shapes; there is no hole, no overlap, and nothing after the
 * end.  `path` stands in messages. */
int tern_ckpt_st_header_read(int fd, const char *path, struct tern_ckpt_st_header *h,
                             struct tern_err *err);
/* The same from bytes at hand (the length word included), for a file of `file_size` bytes. */
int tern_ckpt_st_header_parse(const char *head, size_t len, uint64_t file_size, const char *path,
                              struct tern_ckpt_st_header *h, struct tern_err *err);
void tern_ckpt_st_header_free(struct tern_ckpt_st_header *h);

#endif
