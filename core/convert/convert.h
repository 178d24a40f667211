/* Other tools' formats.  In: Hugging Face folders and Meta's.  Out: what transformers, vLLM and
 * llama.cpp load; the adapters of a run as PEFT's; and weights with their adapters put in.
 */
#ifndef TERN_CONVERT_CONVERT_H
#define TERN_CONVERT_CONVERT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"
#include "core/model/model.h"

/* ---------------------------------------------------------------- in */

/* The weights of a folder that tern did not write, as a handle without steps and digests
 * (tern_ckpt_open_files), under Hugging Face's names:
 *
 *     model.safetensors, or model.safetensors.index.json and its files
 *     pytorch_model.bin, or pytorch_model.bin.index.json and its files (core/pytorch)
 *     params.json and consolidated.NN.pth, as Meta publishes Llama: put into Hugging Face's order
 *
 * the first of them that is there.  `dir` may also be one file of PyTorch.  `key`: of such a file
 * the tensors below this key, without it ("state_dict"; "a.b": of a dict in a dict); NULL: those at
 * the top.  Without a key, dicts with tensors beside these are refused.
 * Another folder is refused by what it is. */
struct tern_ckpt *tern_convert_open(const char *dir, const char *key, struct tern_err *err);

/* The config of a folder of weights: its config.json, or what Meta's params.json makes, as
 * transformers' convert_llama_weights_to_hf.py sets it.  `path` may be a config.json itself. */
int tern_convert_config(const char *path, struct tern_model_config *ret_config,
                        struct tern_err *err);
/* Does the folder have one of these? */
bool tern_convert_has_config(const char *dir);

/* ---------------------------------------------------------------- out */

/* Element type of the exported weights. */
enum tern_convert_dtype {
    TERN_CONVERT_AS_IS, /* as in the checkpoint */
    TERN_CONVERT_F32,
    TERN_CONVERT_BF16,
    TERN_CONVERT_F16,
};

struct tern_convert_hf {
    enum tern_convert_dtype dtype;
    uint64_t max_shard_bytes; /* 0: 5,000,000,000, as the Hub's published files */
    const char *files_from;   /* folder (or tokenizer file) to take the tokenizer from; NULL: the
                                 checkpoint's own copies, else what its meta names as "tokenizer" */
    bool merge;               /* adapters are put into their weights */
    /* With `merge`: a folder or checkpoint to take the weights from; NULL: the checkpoint's own, or
     * the base that PEFT's config names.  Else: what the adapters' config names as base model;
     * NULL: what the run began from. */
    const char *base;
    const char *key; /* see tern_convert_open; NULL: none */
    /* core/convert/nxd.h: the source is a folder of NxD's ranks, or of Optimum Neuron's; NULL: it
     * is not.  With `merge` Optimum Neuron's adapters are seen without it. */
    const struct tern_convert_from_nxd *from_nxd;
    bool verify; /* files of weights are read back from the storage and compared */
    const volatile sig_atomic_t *stop; /* not 0: give up and clean up (Ctrl-C); NULL: never */
};

struct tern_convert_out {
    uint64_t bytes; /* of weights */
    unsigned tensors, shards;
    bool tokenizer; /* one was found and copied */
    bool adapters;  /* adapters alone were written */
};

/* Write the arrays "model/..." of checkpoint `path`, or the weights that tern_convert_open finds
 * there, to the new folder `out_dir`. With `merge`, `path` may be a folder of PEFT
 * (adapter_config.json): its base is written with the adapters put in. The folder gets config.json
 * (with torch_dtype set), and generation_config.json and the tokenizer's files where the source has
 * them. Weights are in model.safetensors or, above max_shard_bytes, in
 * model-0000x-of-0000y.safetensors with model.safetensors.index.json. Order and files follow the
 * rule of transformers' save_pretrained.
 *
 * Of a checkpoint with adapters, these alone are written: adapter_model.safetensors and
 * adapter_config.json, as PEFT's save_pretrained writes them. With `merge` the whole model is
 * written, each weight W that has an adapter as W + scale B A. DoRA's is m (W + scale B A) / ||W +
 * scale B A|| by rows. It is computed in double and rounded once to its type.
 *
 * Memory is bounded: one array passes through in pieces, beside its adapter.  `out_dir` appears
 * whole by rename, or not at all; it may exist only as an empty folder.  `options` NULL: all
 * defaults; `out` may be NULL. */
int tern_convert_to_hf(const char *path, const char *out_dir, const struct tern_convert_hf *options,
                       struct tern_convert_out *out, struct tern_err *err);

/* ---------------------------------------------------------------- adapters put in */

/* Does a checkpoint hold adapters, "lora/..." beside frozen weights "base/..."?  Sets *out. */
bool tern_convert_adapters(const struct tern_ckpt *c, struct tern_model_adapters *out);

struct tern_convert_merge; /* one weight, being read */

/* Tensor `t`, which has an adapter of `a` beside it, is array `prefix`NAME of `base`.  Its adapter
 * is read at once from `adapters`, a checkpoint, or arrays under PEFT's names.  All are borrowed
 * until the close; NULL will do there. */
struct tern_convert_merge *tern_convert_merge_open(struct tern_ckpt *base, const char *prefix,
                                                   struct tern_ckpt *adapters,
                                                   const struct tern_model_adapters *a,
                                                   const struct tern_model_tensor *t,
                                                   struct tern_err *err);
/* Rows and columns start .. start + shape of the merged weight into to[shape], computed in double.
 * With DoRA whole rows are read from disk, for their norms. */
int tern_convert_merge_read(struct tern_convert_merge *m, const int64_t start[2],
                            const int64_t shape[2], double *to, struct tern_err *err);
void tern_convert_merge_close(struct tern_convert_merge *m);

/* 1: lm_head.weight and the embedding are there and the same, as F32; 0: not; -1 with `err`.  *stop
 * not 0 ends the comparison (TERN_FAILED); NULL: nothing does. */
int tern_convert_head_is_embedding(struct tern_ckpt *c, const volatile sig_atomic_t *stop,
                                   struct tern_err *err);

#endif
