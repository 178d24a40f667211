/* PyTorch's files: the tensors in what torch.save wrote.
 *
 *     struct tern_pytorch_file f;
 *     if (tern_pytorch_open("pytorch_model.bin", &f, err) < 0) return -1;
 *     ... f.tensors[i]: name, type, shape, strides, place in the file ...
 *     tern_pytorch_free(&f);
 *
 * Both forms are read.  One is the zip archive (since PyTorch 1.6: NAME/data.pkl and NAME/data/KEY,
 * stored, zip64 where it is large).  The older one is five pickles, then the storages.  Sources:
 * torch/serialization.py, torch/_utils.py, CPython's Lib/pickletools.py.
 *
 * The pickle is interpreted, and nothing in it is executed: opcodes and globals that are not on our
 * lists are refused by name.  Memory, depth and work are bounded.  It happens in a child process
 * that may only read memory and write to its pipe; this process checks the table that comes back.
 * No byte of a tensor is read.
 */
#ifndef TERN_PYTORCH_PYTORCH_H
#define TERN_PYTORCH_PYTORCH_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"

struct tern_pytorch_tensor {
    /* The keys on the way to it, joined by dots: "model.layers.0.mlp.up_proj.weight", or
     * "optimizer.state.0.exp_avg" of dicts in dicts; of a list the index. */
    char *name;
    size_t outer; /* bytes of the name that the dicts around its own make: "optimizer.state.0." */
    enum tern_ckpt_type type; /* TERN_CKPT_OTHER: as its bytes, of one dimension */
    int ndim;
    uint64_t shape[TERN_CKPT_DIMS];
    uint64_t stride[TERN_CKPT_DIMS]; /* elements; 0 repeats */
    uint64_t offset;                 /* of its first byte in the file */
    unsigned storage;                /* tensors with the same number share bytes */
    /* Of tern_pytorch_open_parts: the tensor lies alone in the file tensor_<reference>.pt, as
     * PyTorch/XLA's serialization keeps it, and nothing but its name is known here.  Else -1. */
    int64_t reference;
};

struct tern_pytorch_file {
    struct tern_pytorch_tensor *tensors; /* [n], in the order of the pickle */
    size_t n;
    uint64_t bytes; /* of the file */
};

/* *ret_file is set on success only; free it with tern_pytorch_free.  TERN_USAGE for a file that is
 * damaged, cut off, of another kind, or asks for more than tensors.  TERN_TEMPFAIL where the file
 * or the child may fare better another time: the storage failed, no answer came within ten minutes,
 * the child was killed.  Any thread. */
int tern_pytorch_open(const char *path, struct tern_pytorch_file *ret_file, struct tern_err *err);
void tern_pytorch_free(struct tern_pytorch_file *f); /* harmless on zeros */

/* While *stop is not 0 no file is opened, and waiting for one that is ends (TERN_FAILED).  NULL, as
 * at first: never.  Of the whole process: its program says so once, before other threads begin. */
void tern_pytorch_stop_at(const volatile sig_atomic_t *stop);

/* The same for one of several files that belong together: tensors may be references
 * (torch_xla.utils.serialization), and one tensor without a dict has the name "tensor". */
int tern_pytorch_open_parts(const char *path, struct tern_pytorch_file *ret_file,
                            struct tern_err *err);

/* The same of a file that need not hold tensors.  Whole numbers from 0 on in its dicts, under names
 * as tensors have them, are listed, too.  A number stands in `reference`. */
int tern_pytorch_open_numbers(const char *path, struct tern_pytorch_file *ret_file,
                              struct tern_err *err);

/* The same from a file's bytes at hand, in this process.  `path` stands in messages. */
int tern_pytorch_parse(const void *data, size_t len, const char *path,
                       struct tern_pytorch_file *ret_file, struct tern_err *err);
int tern_pytorch_parse_parts(const void *data, size_t len, const char *path,
                             struct tern_pytorch_file *ret_file, struct tern_err *err);

#endif
