/* A Llama model as numbers: its config.json, and the tensors that follow from it.
 *
 * The one place that knows tensor names, shapes, the axis on which tensor parallelism splits them,
 * parameter counts and FLOPs.  Names and meanings are Hugging Face's (transformers, LlamaConfig and
 * LlamaForCausalLM).  Nothing is allocated but what tern_model_config_json and tern_model_shard_new
 * return; every function may be called by any thread.
 */
#ifndef TERN_MODEL_MODEL_H
#define TERN_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* Ids that may end a text: far above published lists, and 16 KiB of a config. */
enum { TERN_MODEL_EOS_MAX = 4096 };

enum tern_model_rope {
    TERN_MODEL_ROPE_PLAIN,
    TERN_MODEL_ROPE_LLAMA3, /* long wavelengths stretched by `factor` (Llama 3.1) */
};

struct tern_model_config {
    int dim;      /* hidden_size, C */
    int ffn;      /* intermediate_size, F */
    int layers;   /* num_hidden_layers, L */
    int heads;    /* num_attention_heads, H */
    int kv_heads; /* num_key_value_heads, K; `heads` when the key is absent */
    int head_dim; /* D; dim / heads when the key is absent */
    int vocab;    /* vocab_size, V */
    int max_position;
    double norm_eps; /* rms_norm_eps */
    double init_std; /* initializer_range */
    bool tied;       /* tie_word_embeddings: lm_head is embed_tokens */
    double rope_theta;
    enum tern_model_rope rope;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor; /* LLAMA3 */
    int rope_original_max_position;                                  /* LLAMA3 */
    int bos_id, pad_id;                                              /* -1 when absent or null */
    int eos_ids[TERN_MODEL_EOS_MAX]; /* eos_token_id, a number or a list */
    int n_eos;
};

/* Read `path`, a config.json or the folder that holds one.  Unknown keys are ignored; absent ones
 * take LlamaConfig's defaults where a published config relies on them (rope_theta 10000,
 * num_key_value_heads, head_dim, rms_norm_eps 1e-6, tie_word_embeddings false).  An error names the
 * file and the key; values that only Python's json reads do no harm in keys that are not used.
 * Outputs are set on success only. */
int tern_model_config_load(const char *path, struct tern_model_config *ret_config,
                           struct tern_err *err);

/* The same from text; `what` stands for the path in messages. */
int tern_model_config_parse(const char *text, size_t len, const char *what,
                            struct tern_model_config *ret_config, struct tern_err *err);

/* Do the numbers make a model?  (heads % kv_heads, even head_dim, ranges.)  `what` begins the
 * message. */
int tern_model_config_check(const struct tern_model_config *c, const char *what,
                            struct tern_err *err);

/* config.json as transformers reads it, ended by a newline; `dtype` is the type of the stored
 * weights ("float32", "bfloat16").  malloc'ed; aborts without memory. */
char *tern_model_config_json(const struct tern_model_config *c, const char *dtype);

/* Two configs describe the same weights (dtype, ids and max_position may differ). */
bool tern_model_config_same(const struct tern_model_config *a, const struct tern_model_config *b);

/* ---------------------------------------------------------------- tensors
 *
 * In order: embed_tokens; for each layer q, k, v, o, gate, up, down, input and post-attention norm;
 * norm; lm_head (absent when tied).  Weights are [out, in], as nn.Linear keeps them. */
enum tern_model_kind {
    TERN_MODEL_EMBED, /* [V,C] */
    TERN_MODEL_Q,     /* [H*D,C] */
    TERN_MODEL_K,     /* [K*D,C] */
    TERN_MODEL_V,     /* [K*D,C] */
    TERN_MODEL_O,     /* [C,H*D] */
    TERN_MODEL_GATE,  /* [F,C] */
    TERN_MODEL_UP,    /* [F,C] */
    TERN_MODEL_DOWN,  /* [C,F] */
    TERN_MODEL_INPUT_NORM,
    TERN_MODEL_POST_NORM,
    TERN_MODEL_NORM, /* [C], as the two above */
    TERN_MODEL_HEAD, /* [V,C] */
};

struct tern_model_tensor {
    char name[96]; /* "model.layers.0.self_attn.q_proj.weight" */
    enum tern_model_kind kind;
    int layer; /* -1 outside the layers */
    int ndim;  /* 1 or 2 */
    int64_t shape[2];
    int split_axis;  /* where tensor parallelism cuts it; -1: every rank has it whole */
    uint64_t count;  /* elements */
    uint64_t offset; /* elements before it, when all lie in one array in this order */
};

/* How many tensors; `i` below counts from 0. */
size_t tern_model_tensors(const struct tern_model_config *c);
void tern_model_tensor(const struct tern_model_config *c, size_t i,
                       struct tern_model_tensor *ret_tensor);
/* The index of a name, or -1. */
int64_t tern_model_tensor_find(const struct tern_model_config *c, const char *name);

/* Elements of all tensors; a tied head counts once. */
uint64_t tern_model_params(const struct tern_model_config *c);
/* Those that a token is multiplied with: without norms and the embedding look-up, with the head. */
uint64_t tern_model_matmul_params(const struct tern_model_config *c);
/* Of tensor `i` alone in bytes, stored in elements of `element_bytes`. */
uint64_t tern_model_tensor_bytes(const struct tern_model_config *c, size_t i, int element_bytes);

/* ---------------------------------------------------------------- shards
 *
 * The part of a model that one rank holds when tensor x pipeline ranks share it.  Tensor ranks cut
 * each matrix (Megatron-LM, arXiv 1909.08053): those that fan out by rows, those that gather by
 * columns, the vocabulary by rows.  All hold whole norms.  With fewer key heads than tensor ranks,
 * each key head is held by several neighbours.  The layers form pipeline x interleave chunks in a
 * row, as equal as they can be; stage s holds chunks s, s + pipeline, ... (arXiv 2104.04473).  The
 * first chunk has the embedding, the last one norm and head.  A tied head on another stage than the
 * embedding is a copy of it. */
struct tern_model_place {
    int tensor, tensor_rank;
    int pipeline, stage;
    int interleave; /* chunks a stage */
};

/* All of it on one rank. */
extern const struct tern_model_place tern_model_whole;

/* Can the model be cut so?  `what` begins the message. */
int tern_model_place_check(const struct tern_model_config *c, const struct tern_model_place *p,
                           const char *what, struct tern_err *err);

/* The tensor ranks over which a gradient is summed, as each has only its own addends. */
enum tern_model_sum {
    TERN_MODEL_SUM_NONE,
    TERN_MODEL_SUM_KV_HEADS, /* those that hold the same head of keys and values */
    TERN_MODEL_SUM_SEQUENCE, /* all, when each has tokens of its own (norms) */
    TERN_MODEL_SUM_TENSOR,   /* all */
};

/* One tensor, or the slice of it that lies here. */
struct tern_model_part {
    struct tern_model_tensor whole; /* its name and shape in the whole model */
    size_t index;                   /* and place in its table */
    int64_t start[2], shape[2];     /* the slice; of one axis: shape[1] is 1 */
    uint64_t count, offset;         /* elements, and those before it here */
    int replicas;                   /* tensor ranks that hold this same slice */
    bool owner;                     /* the first that holds it: it is counted and saved there */
    enum tern_model_sum sum;
    int unit;
};

/* Neighbouring parts of one width, which are sent and cut as one matrix [rows, width]. They are:
 * embedding; a layer's q, k and v; o; gate and up; down; norms; norm; head. */
struct tern_model_unit {
    uint64_t offset;
    int64_t rows, width;
    size_t part, parts; /* the first, and how many */
    int bucket;         /* of units that are ready at once: a layer, the embedding, norm and head */
};

struct tern_model_chunk {
    int first, layers; /* in the whole model */
    int at;            /* its first layer among those held here */
    bool embeds, heads;
    int bucket; /* of its first layer; the layers' follow each other */
};

struct tern_model_shard {
    struct tern_model_place place;
    struct tern_model_part *parts; /* by offset: chunk by chunk, in the table's order */
    size_t n_parts;
    struct tern_model_unit *units; /* by offset */
    size_t n_units;
    struct tern_model_chunk *chunks; /* [interleave] */
    int n_chunks, n_layers, n_buckets;
    int embed_bucket, head_bucket;    /* -1: not here */
    uint64_t params;                  /* elements */
    int heads, kv_heads, ffn;         /* here */
    int64_t vocab_start, vocab_rows;  /* of embedding and head */
    bool head_is_embed, head_is_copy; /* tied: both here; the embedding is on another stage */
};

/* NULL without memory, or with the message of tern_model_place_check. */
struct tern_model_shard *tern_model_shard_new(const struct tern_model_config *c,
                                              const struct tern_model_place *p,
                                              struct tern_err *err);
void tern_model_shard_free(struct tern_model_shard *s);

/* Low-rank adapters (Hu et al.  2021, arXiv 2106.09685): beside a weight W [out,in] of a layer
 * stand A [rank,in] and B [out,rank].  Its product becomes W x + scale B A dropout(x).  With `dora`
 * (Liu et al.  2024, arXiv 2402.09353) also the magnitudes m [out].  The weight is that of W +
 * scale B A, each row scaled to the length in m.  Names are PEFT's. */
struct tern_model_adapters {
    int rank;         /* 0: none */
    unsigned targets; /* bit 1 << (kind - TERN_MODEL_Q) of TERN_MODEL_Q .. TERN_MODEL_DOWN */
    double scale;     /* alpha / rank; rsLoRA: alpha / sqrt(rank) (arXiv 2312.03732) */
    double dropout;
    bool dora;
    uint64_t seed; /* of A, and of dropout */
};

/* Does a weight of this kind have an adapter? */
bool tern_model_adapter_beside(const struct tern_model_adapters *a, enum tern_model_kind kind);
/* The number of arrays beside a weight: A, B, and with `dora` the magnitudes. */
int tern_model_adapter_arrays(const struct tern_model_adapters *a);

/* The adapters of a shard alone: for each weight as many parts, in this order, each a unit;
 * whole.kind is their weight's.  Chunks and buckets are those of the shard without them. */
struct tern_model_shard *tern_model_shard_adapters(const struct tern_model_config *c,
                                                   const struct tern_model_place *p,
                                                   const struct tern_model_adapters *a,
                                                   struct tern_err *err);
/* Elements of all adapters of a model. */
uint64_t tern_model_adapter_params(const struct tern_model_config *c,
                                   const struct tern_model_adapters *a);

/* Rows [*ret_from, *ret_to) of `u` that are `rank`'s when `ranks` data ranks share them: equal
 * blocks; the last rank has the remainder, too. */
void tern_model_unit_cut(const struct tern_model_unit *u, int rank, int ranks, int64_t *ret_from,
                         int64_t *ret_to);

/* FLOPs a token in rows of `seq_len`: two a multiply-add, of matrix products and attention's two
 * products.  Attention counts the seq_len / 2 positions a token sees on average (the masked half is
 * not counted).  A backward pass counts as two forward ones.  As in Megatron-LM's count (Narayanan
 * et al. 2021, arXiv 2104.04473), less the mask and the recomputation. */
double tern_model_flops_forward(const struct tern_model_config *c, int seq_len);
double tern_model_flops_train(const struct tern_model_config *c, int seq_len);
/* Of training adapters alone.  A frozen matrix has no gradient.  Nothing before the first layer
 * needs one, so that q, k and v pass none on there.  DoRA's magnitudes and norms do not count, nor
 * the recomputation for them. */
double tern_model_flops_adapters(const struct tern_model_config *c, int seq_len,
                                 const struct tern_model_adapters *a);

#endif
