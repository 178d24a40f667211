/* Other tools' formats.  Hugging Face folders out: what transformers, vLLM and llama.cpp load.
 *
 * (In, a Hugging Face folder is read by tern_ckpt_open_hf, core/ckpt/ckpt.h.)
 */
#ifndef TERN_CONVERT_CONVERT_H
#define TERN_CONVERT_CONVERT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

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
    const volatile sig_atomic_t *stop; /* not 0: give up and clean up (Ctrl-C); NULL: never */
};

struct tern_convert_out {
    uint64_t bytes; /* of weights */
    unsigned tensors, shards;
    bool tokenizer; /* one was found and copied */
};

/* Write the arrays "model/..." of checkpoint `path` to the new folder `out_dir`: config.json (with
 * torch_dtype set), generation_config.json and the tokenizer's files where the source has them, and
 * weights in model.safetensors or, above max_shard_bytes, in model-0000x-of-0000y.safetensors with
 * model.safetensors.index.json, in the order and by the rule of transformers' save_pretrained.
 *
 * Memory is constant: one array passes through in pieces.  `out_dir` appears whole by rename, or
 * not at all; it may exist only as an empty folder.  `options` NULL: all defaults; `out` may be
 * NULL. */
int tern_convert_to_hf(const char *path, const char *out_dir, const struct tern_convert_hf *options,
                       struct tern_convert_out *out, struct tern_err *err);

#endif
