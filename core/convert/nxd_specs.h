/* How the adapters (LoRA) on Optimum Neuron's ranks become those of the model: what it writes
 * beside them, mp_metadata_pp_rank_N.json, one for each pipeline rank.
 *
 *     {"parameters": {"...o_proj.lora_A.default.weight": {"tensor_model_parallel": true,
 *                                                         "partition_dim": 1, ...}, ...},
 *      "model_weight_transformation_specs": [
 *          {"module_fully_qualified_name": "base_model.model.model.layers.0.self_attn",
 *           "specs": [["GQAQKVColumnParallelLinearSpec", {"num_attention_heads": 32, ...}]]}, ...]}
 *
 * Source: huggingface/optimum-neuron 0.4.5, models/training/transformations_utils.py
 * (to_original_weights), checkpointing.py and peft/peft_model.py.  A rank keeps one A for q, k and
 * v (qkv_proj), or for gate and up (gate_up_proj), and their B one below the other.  Key heads of B
 * have copies.  q's heads and o_proj's columns stand in the order of core/convert/nxd.h, trn1's.
 *
 * Releases before 0.2 (SDK 2.20 to 2.21) kept each module for itself, and wrote a pickle, .pt:
 *
 *     {"sharded_metadata": {"...o_proj.lora_A.weight": {"kind": "sharded", "partition_dim": 1},
 * ...}, "gqa_qkv_metadata": {"num_attention_heads": null, ...}}
 */
#ifndef TERN_CONVERT_NXD_SPECS_H
#define TERN_CONVERT_NXD_SPECS_H

#include <jansson.h>

#include "core/convert/nxd_plan.h"

/* A tensor of the ranks, or rows of it, as an array of PEFT's. */
struct tern_convert_nxd_rule {
    char *from, *to;
    enum tern_model_kind kind; /* Q, K, V, O: by heads; GATE: rows of the ranks in turn; DOWN:
                                  columns; NORM: each rank has it whole */
    int axis;                  /* as in nxd_plan.h */
    int64_t first, count;      /* rows of each rank; count 0: all of its rows or columns */
    int64_t all;               /* rows or columns that each rank has; 0: any number */
};

struct tern_convert_nxd_specs {
    struct tern_convert_nxd_rule *rules; /* [n]; those with one `from` are neighbours */
    size_t n, room;
    json_t *first;                     /* {from: index of its first rule} */
    json_t *wanted;                    /* {from: true}: parameters that must be there */
    json_t *fused;                     /* {"qkv_proj": ["q_proj", ...]}: modules with adapters */
    struct tern_convert_nxd_plan plan; /* heads; ranks */
};

/* Rules of one pipeline rank by its `meta`, for adapter `name` (NULL: the only one), of a folder
 * with `tensor` tensor ranks.  `what` begins messages.  *to starts as zeros; freed by
 * tern_convert_nxd_specs_free in any case. */
int tern_convert_nxd_specs_read(const json_t *meta, const char *name, int tensor, const char *what,
                                struct tern_convert_nxd_specs *to, struct tern_err *err);
void tern_convert_nxd_specs_free(struct tern_convert_nxd_specs *s);

#endif
