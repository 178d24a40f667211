/* Files of PyTorch's zip format, written without Python.  torch.load reads them, with
 * weights_only=True, from 1.13 on.
 *
 *     NAME/data.pkl     a pickle of protocol 2: names, shapes and types of tensors
 *     NAME/byteorder    "little"
 *     NAME/data/0 ...   the bytes of each storage, stored, from a multiple of 64 bytes on
 *     NAME/version      "3"
 *
 * NAME is the file's name without its last suffix, as torch.save has it.  (PyTorch,
 * caffe2/serialize/inline_container.cc; sizes beyond 4 GiB as in PKWARE's APPNOTE 4.3, "zip64".)
 *
 * The pickle is made in memory, and the bytes follow in pieces of any size:
 *
 *     struct tern_pytorch_object *p = tern_pytorch_object_new();
 *     tern_pytorch_object_dict(p);
 *     tern_pytorch_object_text(p, "norm.weight");
 *     tern_pytorch_object_tensor(p, &tensor);
 *     tern_pytorch_object_end(p);
 *     struct tern_pytorch_write *w = tern_pytorch_write_open("model.pt", p, NULL, err);
 *     if (!w) return -1;
 *     if (tern_pytorch_write_bytes(w, data, len, err) < 0) {
 *         tern_pytorch_write_abort(w);
 *         return -1;
 *     }
 *     return tern_pytorch_write_commit(w, err);
 */
#ifndef TERN_PYTORCH_WRITE_H
#define TERN_PYTORCH_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/behind.h"
#include "core/base/err.h"

enum { TERN_PYTORCH_DIMS = 4 };

/* A contiguous tensor on the CPU. */
struct tern_pytorch_array {
    const char *dtype; /* as PyTorch calls it: "float32", "bfloat16" */
    int ndim;          /* 0 (a scalar) to TERN_PYTORCH_DIMS */
    uint64_t shape[TERN_PYTORCH_DIMS];
};

/* Bytes of an element; 0 when there is no such type, or none that torch.load reads everywhere. */
unsigned tern_pytorch_dtype_bytes(const char *dtype);

/* ---------------------------------------------------------------- the object */

struct tern_pytorch_object; /* one object, being put together */

/* Aborts without memory, as tern_strdup does. */
struct tern_pytorch_object *tern_pytorch_object_new(void);
/* Of a pickle that was given to no writer; NULL will do. */
void tern_pytorch_object_free(struct tern_pytorch_object *p);

/* A dict: keys and values follow by turns, until its end. */
void tern_pytorch_object_dict(struct tern_pytorch_object *p);
void tern_pytorch_object_end(struct tern_pytorch_object *p);
/* Keys and values. */
void tern_pytorch_object_text(struct tern_pytorch_object *p, const char *utf8);
void tern_pytorch_object_int(struct tern_pytorch_object *p, int64_t n);
void tern_pytorch_object_bool(struct tern_pytorch_object *p, bool is);
/* A torch.dtype and a torch.Size. */
void tern_pytorch_object_dtype(struct tern_pytorch_object *p, const char *dtype);
void tern_pytorch_object_size(struct tern_pytorch_object *p, const struct tern_pytorch_array *t);
/* A tensor with a storage of its own, the next of the file. */
void tern_pytorch_object_tensor(struct tern_pytorch_object *p, const struct tern_pytorch_array *t);
/* torch_xla.utils.serialization.TensorReference: stands for the tensor in tensor_<id>.pt. */
void tern_pytorch_object_reference(struct tern_pytorch_object *p, int64_t id);

/* ---------------------------------------------------------------- the file */

struct tern_pytorch_write; /* a file being written; its storages are filled one after the other */

struct tern_pytorch_write_how {
    uint64_t zip64_from; /* sizes and offsets from here on stand in the fields of zip64; 0: from
                            0xffffffff on, where they must; less for tests */
    const struct tern_behind_read_back *read_back; /* by the commit; NULL: it is not read back */
};

/* Begin `path`, a new file that appears at the commit (core/base/fs.h).  Takes `p`, which holds one
 * whole object, also when it fails.  `how` NULL: all defaults.  NULL with `err`. */
struct tern_pytorch_write *tern_pytorch_write_open(const char *path, struct tern_pytorch_object *p,
                                                   const struct tern_pytorch_write_how *how,
                                                   struct tern_err *err);
/* The next `len` bytes of the storages, in the order in which their tensors were given.  A piece
 * may end one storage and begin the next.  After an error the writer can only be aborted. */
int tern_pytorch_write_bytes(struct tern_pytorch_write *w, const void *data, size_t len,
                             struct tern_err *err);
/* All bytes were given: the file is made durable and gets its name.  Frees `w`, on error too. */
int tern_pytorch_write_commit(struct tern_pytorch_write *w, struct tern_err *err);
/* Nothing is left behind; NULL will do.  Frees `w`. */
void tern_pytorch_write_abort(struct tern_pytorch_write *w);

#endif
