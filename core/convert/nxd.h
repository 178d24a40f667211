/* Weights as NeuronX Distributed's trainer (NxD, run_llama_nxd.py) loads and saves them: a file for
 * each tensor and pipeline rank.
 *
 *     OUT/model/dp_rank_00_tp_rank_03_pp_rank_01.pt           {"model.layers.9.mlp...": tensor,
 * ...}
 *
 * and with xser, the serialization of PyTorch/XLA,
 *
 *     OUT/model/dp_rank_00_tp_rank_03_pp_rank_01.pt           names, each with a tensor's number N
 *     OUT/model/dp_rank_00_tp_rank_03_pp_rank_01.pt.info.pt   their shapes and types
 *     OUT/model/dp_rank_00_tp_rank_03_pp_rank_01.pt.tensors/tensor_N.pt
 *
 * A rank's tensors (github.com/aws-neuron/neuronx-distributed, release 2.29: its converter
 * scripts/checkpoint_converter.py, the model examples/training/llama/modeling_llama_nxd.py and
 * modules/qkv_linear.py):
 *
 *     model.embed_tokens.weight     rows cut; the first pipeline rank's
 *     ...self_attn.qkv_proj...      q, k and v: see below
 *     ...self_attn.o_proj.weight    columns cut, by the heads of q
 *     ...mlp.gate_up_proj.weight    this rank's rows of gate_proj, then those of up_proj
 *     ...mlp.down_proj.weight       columns cut
 *     ...layernorm.weight           whole
 *     model.norm, lm_head.weight    whole; rows cut; the last pipeline rank's.  A tied head is a
 *                                   copy of the embedding.
 *
 * Key heads: with `m` copies of each (NxD's kv_replicator), K m heads stand in a row and are dealt
 * evenly to the tensor ranks.  trn1 has all heads once, then again (interleaved).  trn2 has the
 * copies of a head side by side (blocked): of m neighbouring ranks each has one copy of the same
 * heads.  That holds also where m is more than the fewest.  Query heads go where their key head is:
 * its copy number i has the i-th of m equal parts of its queries.
 *
 * Layers: equal parts; the last parts have the layers that are left over, one each.
 */
#ifndef TERN_CONVERT_NXD_H
#define TERN_CONVERT_NXD_H

#include "core/convert/convert.h"

/* The names of the files. */
enum tern_convert_nxd_files {
    TERN_CONVERT_NXD_V2, /* model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt: nxd.load_checkpoint */
    TERN_CONVERT_NXD_V1, /* tp_rank_TT_pp_rank_PP/checkpoint.pt: older trainers */
    TERN_CONVERT_NXD_V3, /* model/dp_rank_00_ep_rank_00_tp_rank_TT_pp_rank_PP.pt */
};

/* How q, k and v are kept, by the flags of run_llama_nxd.py. */
enum tern_convert_nxd_qkv {
    TERN_CONVERT_NXD_AUTO,  /* COALESCED where every query has a key head of its own; or FUSED */
    TERN_CONVERT_NXD_FUSED, /* qkv_proj.weight_qkv: qkv_linear 1, fuse_qkv 1 */
    TERN_CONVERT_NXD_SPLIT, /* qkv_proj.weight_q, _k, _v: qkv_linear 1, fuse_qkv 0 */
    TERN_CONVERT_NXD_COALESCED, /* qkv_proj.weight: qkv_linear 0, fuse_qkv 1 */
    TERN_CONVERT_NXD_SEPARATE,  /* q_proj.weight, k_proj, v_proj: qkv_linear 0, fuse_qkv 0 */
};

enum tern_convert_nxd_hw { TERN_CONVERT_NXD_TRN1, TERN_CONVERT_NXD_TRN2 };

struct tern_convert_nxd {
    int tensor, pipeline; /* ranks; 0: 1 */
    int interleave;       /* parts of a pipeline rank (virtual_pipeline_size); 0: 1 */
    int kv_replicator;    /* copies of a key head; 0: the fewest that can be dealt evenly */
    enum tern_convert_nxd_qkv qkv;
    enum tern_convert_nxd_hw hw;
    enum tern_convert_nxd_files files;
    bool xser;
    const struct tern_convert_from_nxd
        *from;    /* the source is such a folder, too; NULL: it is not */
    bool markers; /* files "checkpoint" and "done": it is a checkpoint, and complete.  NxD removes
                     folders with markers by num_kept_ckpts and takes the newest for a checkpoint of
                     its own; its converter writes none */
    enum tern_convert_dtype dtype;
    bool verify; /* files of weights are read back from the storage and compared */
    const volatile sig_atomic_t *stop; /* not 0: give up and clean up (Ctrl-C); NULL: never */
};

/* A folder of NxD's ranks as the source. */
struct tern_convert_from_nxd {
    const char *config; /* the model's config.json, or the folder that holds it; NULL: in the ranks'
                           folder.  NxD keeps none */
    enum tern_convert_nxd_hw hw;
    const volatile sig_atomic_t *stop; /* not 0: give up (Ctrl-C); NULL: never */
};

struct tern_convert_nxd_out {
    uint64_t bytes;    /* of tensors, in all files */
    unsigned ranks;    /* tensor x pipeline */
    int kv_replicator; /* as it was chosen */
    enum tern_convert_nxd_qkv qkv;
};

/* Write the model of `path`, a checkpoint of ours or a Hugging Face folder, to the new folder
 * `out_dir`.  The folder appears whole by rename, or not at all.  Memory is bounded: pieces of 8
 * MiB. A checkpoint with adapters is refused (TERN_USAGE): `tern ckpt merge` comes first.  `out`
 * may be NULL. */
int tern_convert_to_nxd(const char *path, const char *out_dir,
                        const struct tern_convert_nxd *options, struct tern_convert_nxd_out *out,
                        struct tern_err *err);

/* The weights of such a folder as a handle without steps and digests, under Hugging Face's names.
 * The files show how many ranks there are, their names, xser, the form of q, k and v, and the
 * copies of key heads.  from->hw tells in which order the copies stand (it does not matter where
 * there is one of each).  It is refused where copies differ.  `c` is the model's config, which NxD
 * does not keep; from->config is not read.  `dir` holds "model", or the ranks' files themselves.
 * Each tensor of the files is one of the config's, or refused.  A tied model's lm_head.weight,
 * where one is there, is an array, too.  The files are opened by a child without rights
 * (core/pytorch/pytorch.h). */
struct tern_ckpt *tern_convert_open_nxd(const char *dir, const struct tern_model_config *c,
                                        const struct tern_convert_from_nxd *from,
                                        struct tern_err *err);

#endif
